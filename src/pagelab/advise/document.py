"""What ``pagelab advise --json`` prints: plain frozen data, published as ``docs/schema/advice-1.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis.try_document import Change

SCHEMA: Literal["pagelab.advice/1"] = "pagelab.advice/1"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RegionGain(_Model):
    """One region of a pool, and what it gains by 2M pages."""

    pool: Literal["heap", "anon", "arenas"]
    start_bytes: int
    """Offsets in the pool."""
    end_bytes: int
    gain_percent: float | None
    """Posterior mean, of the time in base pages; positive is faster. Null by misses, which tell no time."""
    low_percent: float | None
    high_percent: float | None
    """95% posterior interval."""
    misses_percent: float | None = None
    """Share of all TLB misses in base pages; null where mosaics were timed."""
    chosen: bool


class Checked(Change):
    """One condition of the check against the kernel's own way."""

    condition: Literal["advice", "2M"]


class Promise(Change):
    """The advice against base pages, in the check: what became of the promise."""

    kept: Literal["within", "below", "above"] | None
    """Where the measured gain lies: in the promise's interval, below or above it; null where it was not measured."""


class AdviceDocument(_Model):
    """Where the huge pages of one command should go."""

    schema_: Literal["pagelab.advice/1"] = Field(default=SCHEMA, alias="schema")
    command: list[str]
    verdict: str
    metric: str
    metric_why: str = ""
    """Why it is not wall time, where nobody named it."""
    evidence: Literal["mosaics", "trace", "samples"] = "mosaics"
    budget_bytes: int | None
    used_bytes: dict[str, int]
    """By pool: addresses up to the last byte that was used; most of them may have no memory. By misses: tiles of it."""
    mostly_empty: str = ""
    """That most of these addresses have no memory, where that is so; else nothing."""
    huge_bytes: int
    """Of the advice: what it can take in 2M pages."""
    left_out: int
    """Regions that gain (by misses: tiles of 2 MiB that miss), and for which the budget had no room."""
    promised_percent: float | None
    promised_low_percent: float | None
    promised_high_percent: float | None
    """Gain of the advice against base pages, and its 95% posterior interval, before the check; null by misses."""
    promise: Promise | None = None
    """Null where nothing was promised."""
    regions: list[RegionGain]
    rounds: int
    """Of mosaics, each with regions of its own."""
    executions: int
    """Of mosaics, in all rounds."""
    checked: list[Checked]
    resident_base_bytes: int
    """Peak resident memory of the largest process, in base pages."""
    resident_huge_bytes: int
    """The same with everything in 2M pages."""
    resident_advice_bytes: int | None = None
    """The same with the advice, the median of the check's executions; null where nothing was advised."""
    caveats: list[str]
    directory: str
    policy: str | None
    """The advice as a policy; None where nothing is advised."""
    next: str
    why: str
