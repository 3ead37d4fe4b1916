"""Presents a study of two commands (``pagelab compare A B --into DIR``) as one workload, with A as the baseline of B.

Analysis and reports compare policies of one workload. Two commands are two workloads, so they are presented as one
workload, "the command", under the policies A and B. The store is not changed.
"""

from __future__ import annotations

import polars as pl

from pagelab.study.plan import Plan
from pagelab.study.sides import NAME, SIDES

COMMAND = "the command"
"""Name of the workload for both commands; it can be the subject of a sentence."""


def are_two_commands(plan: Plan) -> bool:
    """Whether ``pagelab compare`` made this study of two commands."""
    return plan.name == NAME and tuple(one.workload_name for one in plan.conditions) == SIDES


def as_one(plan: Plan, runs: pl.DataFrame) -> tuple[Plan, pl.DataFrame]:
    """Plan and runs with workload :data:`COMMAND` and policies A and B; any other study unchanged."""
    if not are_two_commands(plan):
        return plan, runs
    conditions = [
        one.model_copy(update={"workload": COMMAND, "policy": one.workload_name, "baseline": side == 0})
        for side, one in enumerate(plan.conditions)
    ]
    policies = {one.name: one.policy for one in conditions}
    labelled = runs.with_columns(
        workload=pl.lit(COMMAND), policy=pl.col("condition").replace_strict(policies, return_dtype=pl.String)
    )
    return plan.model_copy(update={"conditions": conditions, "baseline": SIDES[0]}), labelled
