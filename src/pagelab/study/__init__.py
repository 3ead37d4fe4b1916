"""Plans, runs and stores studies: a question, conditions, a recorded random order, and a crash-safe store.

``spec`` reads a study.toml, ``planning`` resolves it into conditions, ``schedule`` orders the runs, ``session``
makes them, ``store`` keeps them. Nothing here computes a statistic: :mod:`pagelab.stats` does, from the store's frames.
"""
