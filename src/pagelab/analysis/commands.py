"""A study of two commands (``pagelab compare A B --into DIR``): A is the baseline of B.

Analysis and reports compare policies of one workload. Two commands are two workloads, so they are told as one, "the
command", that was run as A and as B. What is stored stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import polars as pl

from pagelab.analysis.gates import Outcome, parse_gate
from pagelab.analysis.model import Limit
from pagelab.study.plan import Plan
from pagelab.study.sides import NAME, SIDES
from pagelab.study.store import Store

_OUTCOMES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
COMMAND = "the command"
"""The workload that both are; a sentence can have it as its subject."""


def are_two_commands(plan: Plan) -> bool:
    """Whether ``pagelab compare`` made this study of two commands."""
    return plan.name == NAME and tuple(one.workload_name for one in plan.conditions) == SIDES


def keep_limits(store: Store, judged: Iterable[tuple[str, Outcome, int | None]]) -> None:
    """Keeps how limits (``ratio>3%``) were judged on these executions, and how many of each would decide."""
    store.put_event("limits", {"runs": store.runs().height, "judged": [list(one) for one in judged]})


def limits_of(events: Iterable[dict[str, Any]], runs: int) -> tuple[Limit, ...]:
    """Limits and their outcomes as they were judged last; none where executions were added since."""
    kept = [event["data"] for event in events if event["kind"] == "limits"]
    if not kept or kept[-1]["runs"] != runs:
        return ()
    return tuple(_limit(*judged) for judged in kept[-1]["judged"])


def _limit(text: str, outcome: Outcome, needed: int | None = None) -> Limit:
    gate = parse_gate(text)
    return Limit(text, outcome, gate.limit_percent / 100 if gate.metric == "ratio" else None, needed)


def with_limits(sentence: str, limits: tuple[Limit, ...]) -> str:
    """``B is 45.6% slower than A (…): FAIL, limit 3%.``"""
    if not limits:
        return sentence
    told = [f"{_OUTCOMES[one.outcome]}, {short(one)}" for one in limits]
    return f"{sentence.removesuffix('.')}: {'; '.join(told)}."


def short(limit: Limit) -> str:
    """``limit 3%``; with its sign or its metric where it is not the usual one."""
    return f"limit {limit.text.removeprefix('ratio>')}".replace("-", "−")


def as_one(plan: Plan, runs: pl.DataFrame) -> tuple[Plan, pl.DataFrame]:
    """Plan and runs with workload :data:`COMMAND` and policies A and B; any other study as it is."""
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
