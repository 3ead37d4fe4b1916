"""Simulated coverage of every interval, at fixed n and under the precision stop.

``python -m bench.coverage.precision`` reproduces ``docs/method/precision_coverage.csv`` from its seed; see ``--help``.
"""
