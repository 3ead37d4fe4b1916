"""Studies whose executions, or blocks, are each in a boot of their own (docs/study.md: a fresh boot).

:mod:`count` keeps the number of boots on the disk, :mod:`boot` has the steps of a boot, :mod:`permission` the messages
and refusals before it, :mod:`arming` starts and stops such a study. Outside this package,
:mod:`pagelab.study.boot_session` makes the runs of a boot, :mod:`pagelab.study.systemd` calls the system manager, and
:mod:`pagelab.study.systemd_units` has the units' texts.
"""
