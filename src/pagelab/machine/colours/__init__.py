"""The probe of colours: the relation of frame numbers and this machine's caches, measured and judged (docs/doctor.md).

``probe_colours.probe``, beside this package, measures (``pagelab-workload colour-chase``) and judges by ``rule``;
``store.store`` keeps the verdict, and ``store.stored`` returns the one that still holds, which is part of the machine
description and so of every record.
"""
