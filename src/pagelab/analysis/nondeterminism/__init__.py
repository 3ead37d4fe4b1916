"""Non-determinism in a study: ALLOC's metrics, ranks and figures (4 to 10, and 1), from a store's data.

The statistics are `pagelab.stats.nondeterminism`; here a study's workloads become groups, its policies conditions, and
what was found becomes plain values (`analysis/nondeterminism_model.py`) and words. `build` makes it; which intervals
may be wrong says `interval_warnings`.
"""
