"""Coverage of pagelab's intervals and gates, on simulated data with known truth: the tables of docs/method.

``python -m bench.coverage`` measures every interval and gate that a report prints, with the settings it ships with, and
writes the tables; ``python -m bench.coverage.precision`` does so for studies that stop themselves.
"""
