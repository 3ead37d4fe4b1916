"""The probe of colours: it measures and judges how frame numbers select cache sets here (docs/doctor.md).

``probe_colours.probe``, beside this package, measures (``pagelab-workload colour-chase``) and judges by ``rule``.
``store.store`` keeps the verdict; ``store.stored`` returns the one that still holds. The machine description, and so
every record, contains it.
"""
