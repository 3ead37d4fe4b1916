"""Analyses non-determinism in a study: ALLOC's metrics, ranks and figures (4 to 10, and 1), from a store's data.

The statistics are in `pagelab.stats.nondeterminism`. Here the workloads of a study become groups, its policies become
conditions, and the results become plain values (`analysis/nondeterminism_model.py`) and words. `build` makes the whole;
`interval_warnings` reports which intervals may be wrong.
"""
