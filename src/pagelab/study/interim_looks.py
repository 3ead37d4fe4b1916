"""The planned looks of a precision stop: the runs before each look, and its decision (docs/method)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .answering import contrasts
from .plan import Plan
from .store import Store


@dataclass(frozen=True)
class Look:
    """The runs of the blocks ``first_block`` … ``blocks - 1``, and the look after them. The first has the warm-ups."""

    first_block: int
    blocks: int

    def decide(self, store: Store) -> dict[str, Any]:
        """The decision of :func:`pagelab.stats.decide` on the first ``blocks`` whole blocks, as data for the store."""
        from ..stats import PrecisionPlan, StatsRefusedError, decide
        from ..stats.precision import Contrast

        plan = store.plan()
        assert plan.precision is not None
        rule = PrecisionPlan(tuple(plan.precision.looks), plan.precision.target, plan.level)
        pairs = [Contrast(treatment.name, baseline.name) for treatment, baseline in contrasts(plan)]
        try:
            values, blocks = executions(store, plan, self.blocks)
            decision = decide(rule, self.blocks, values, pairs, blocks if plan.test == "pairs" else None)
        except StatsRefusedError as error:
            last = self.blocks == rule.maximum
            reason = "maximum-reached" if last else "go-on"
            return {"look": self.blocks, "stop": last, "reason": reason, "refused": str(error)}
        return {
            "look": decision.look,
            "stop": decision.stop,
            "reason": decision.reason.value,
            "level": decision.level,
            "relative_half_width": [
                {"treatment": pair.treatment, "baseline": pair.baseline, "value": width}
                for pair, width in decision.relative_half_width.items()
            ],
        }


@dataclass(frozen=True)
class Looks:
    planned: list[Look]
    """The looks that are not yet taken; a study of fixed n has one, at its end."""
    stopped: int | None
    """Number of blocks after which a look ended the study."""
    missed: bool = False
    """Whether the study ended at its maximum, with intervals wider than the target."""


def looks_of(store: Store) -> Looks:
    """The looks of a study that are still planned, and whether one has ended it."""
    plan = store.plan()
    ends = plan.precision.looks if plan.precision else [plan.executions]
    taken = [event["data"] for event in store.events() if event["kind"] == "look"]
    stopped = next((look["look"] for look in taken if look["stop"]), None)
    begins = [-plan.warmups, *ends[:-1]]
    planned = [Look(begin, end) for begin, end in zip(begins, ends, strict=True)]
    done = {look["look"] for look in taken}
    missed = any(look["reason"] == "maximum-reached" for look in taken)
    return Looks([look for look in planned if look.blocks not in done], stopped, missed)


def executions(store: Store, plan: Plan, blocks: int) -> tuple[dict[str, list[float]], dict[str, list[int]]]:
    """Condition → the primary metric's values in the first ``blocks`` blocks, and the block of each value.

    Failed runs and warm-ups have none.
    """
    import polars as pl

    runs = store.runs().filter(~pl.col("warmup") & (pl.col("block") < blocks) & (pl.col("status") == "ok"))
    values: dict[str, list[float]] = {}
    labels: dict[str, list[int]] = {}
    for condition in plan.active():
        own = runs.filter(pl.col("condition") == condition.name).select("run_id", "block")
        found = own.join(store.metric(condition.metric), on="run_id")
        values[condition.name] = found["value"].to_list()
        labels[condition.name] = found["block"].to_list()
    return values, labels
