"""Studies whose executions, or blocks, are each in a boot of their own (docs/study.md: a fresh boot).

:mod:`count` has the number of boots on the disk, :mod:`boot` what a boot does, :mod:`permission` what is told and
refused before, :mod:`arming` the way in and out. Beside it :mod:`pagelab.study.boot_session` has the runs of a boot,
:mod:`pagelab.study.systemd` the calls of the system manager, :mod:`pagelab.study.systemd_units` the units' texts.
"""
