"""Non-determinism in a study: ALLOC's metrics, ranks and figures (4 to 10, and 1), from a store's data.

The statistics are `pagelab.stats.nondeterminism`; here a study's workloads become groups, its policies conditions, and
what was found becomes plain values (`model`) and words. `build` makes it, `alarms` tells what may be doubted.
"""
