"""``pagelab diagnose``: the source of variance between executions of a program (docs/diagnose.md).

``sources`` says what can be switched, ``campaign`` runs the studies, ``allocate`` divides the budget, ``spread`` and
``judge`` are the statistics, ``words``, ``picture`` and ``files`` what is shown.
"""
