"""Studies: a question, conditions, a recorded random order, and a crash-safe store.

``spec`` reads a study.toml, ``planning`` resolves it into conditions, ``schedule`` orders the runs, ``session``
performs them, ``store`` keeps them. Nothing here computes a statistic: that is
:mod:`pagelab.stats` on what the store returns.
"""
