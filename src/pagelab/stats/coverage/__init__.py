"""Simulated coverage of every interval, at fixed n and under the precision stop.

``python -m pagelab.stats.coverage`` reproduces ``docs/method/precision_coverage.csv`` from its seed; see ``--help``.
"""
