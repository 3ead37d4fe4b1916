"""Studies whose executions, or blocks, are each in a boot of their own (docs/study.md: a fresh boot).

:mod:`units` has the texts of the systemd units, :mod:`systemd` the calls of the system manager, :mod:`count` the number
of boots on the disk, :mod:`boot` what a boot does, :mod:`session` its runs, :mod:`permission` what is told and refused
before, :mod:`arming` the way in and out.
"""
