"""Measurements and verdict of the probe of colours; the verdict is stored as ``pagelab.colours/1``."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

Kind = Literal["same", "spread", "conflict"]


class Verdict(StrEnum):
    """Effect of a frame policy on this machine."""

    EFFECTIVE = "effective"
    SCATTERED = "not effective: this looks like a guest whose frames are scattered by its host"
    HASHED = "hashed index: give masks"
    INCONCLUSIVE = "inconclusive"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Sample(_Model):
    """One chain: median of five timed pieces."""

    round: int
    chain_pages: int
    kind: Kind
    ns_per_load: float


class Chase(BaseModel):
    """Output of ``pagelab-workload colour-chase`` (``pagelab.colour-chase/1``)."""

    model_config = ConfigDict(frozen=True)

    colours: int
    ways: int
    inner_colours: int
    inner_ways: int
    masks: list[int]
    rounds: int
    seed: int
    pool_pages: int
    candidates: list[int]
    """Frame numbers of the pages among which conflicting ones were looked for."""
    near_ns: float
    """Loading a page that the cache holds; 0 where no conflicts were looked for."""
    far_ns: float
    """Loading a page that the cache has lost."""
    attempts: int
    classes: list[list[int]]
    """Frame numbers of pages that conflict by timing, one list a class."""
    samples: list[Sample]


class Ratio(_Model):
    """A kind of chain against the spread chain of the same length and round: median of the ratios."""

    kind: Literal["same", "conflict"]
    chain_pages: int
    fits: Literal["yes", "just", "no"]
    """Whether a chain of one colour fits into the cache's ways: at most half of them, about all, twice or more."""
    median: float
    low: float | None
    high: float | None
    """The exact order-statistic interval of the median; ``None`` where there are too few rounds for its level."""
    level: float
    rounds: int
    ns_per_load: float
    """Median of the chain itself."""
    spread_ns_per_load: float


class CacheVerdict(_Model):
    """The verdict on one cache."""

    level: int
    size_bytes: int
    ways: int
    colours: int
    """Nominal: size / ways / page."""
    verdict: Verdict
    reason: str
    masks: list[str] = Field(default_factory=list)
    """Masks over frame-number bits that do tell conflicting pages apart, as a policy takes them."""
    classes: int = 0
    """Sets of pages found that conflict by timing."""
    class_pages: int = 0
    ratios: list[Ratio] = Field(default_factory=list)


class VerdictFile(_Model):
    """The verdict for a machine, with its evidence."""

    schema_: Literal["pagelab.colours/1"] = Field(default="pagelab.colours/1", alias="schema")
    verdict: Verdict
    """The best of the caches': effective, else hashed, else scattered, else inconclusive."""
    caches: list[CacheVerdict]
    measured_at: str
    machine: str
    """A hash of the machine's id; the id itself is confidential."""
    boot_id: str | None
    host: str
    cpu: str | None
    virtualisation: str
    pagelab: str | None
    seed: int
