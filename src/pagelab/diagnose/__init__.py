"""``pagelab diagnose``: the source of variance between executions of a program (docs/diagnose.md).

``sources`` lists what can be switched, ``campaign`` runs the studies, ``allocate`` divides the budget, ``spread`` and
``judge`` compute the statistics, ``answer``, ``words``, ``picture`` and ``page`` present them.
"""
