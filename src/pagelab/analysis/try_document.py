"""The JSON of ``pagelab try --json``: plain frozen data, published as ``docs/schema/try-1.json``."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.analysis.answer import Answer, Said, words
from pagelab.analysis.model import Metric

SCHEMA: Literal["pagelab.try/1"] = "pagelab.try/1"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Change(_Model):
    """What a comparison of pairs found, in percent."""

    said: Said
    words: str
    """The same in words, with its size."""
    change_percent: float | None
    """100 (ratio of pairs - 1): Hodges-Lehmann estimate."""
    low_percent: float | None
    high_percent: float | None
    """Interval at the study's level, unadjusted."""
    p: float | None
    """Test of signed ranks, two-sided, after Holm over all conditions."""
    pairs: int


def change(found: Answer, metric: Metric) -> dict[str, Any]:
    """The fields of a :class:`Change`, from an answer."""
    interval = found.interval
    return {
        "said": found.said,
        "words": words(found, metric),
        "change_percent": None if found.change is None else 100 * found.change,
        "low_percent": None if interval is None else 100 * interval.low,
        "high_percent": None if interval is None else 100 * interval.high,
        "p": found.p,
        "pairs": found.pairs,
    }


class Setting(Change):
    """One condition against the first."""

    setting: str
    """As it was typed."""
    condition: str
    """Its name in the study."""
    seen_percent: float | None
    """The smallest change that so many pairs would show in four of five studies."""
    needed: int | None
    """Executions of each for an interval of ±3%."""
    sentence: str


class TryDocument(_Model):
    """One command under several settings."""

    schema_: Literal["pagelab.try/1"] = Field(default=SCHEMA, alias="schema")
    command: list[str]
    baseline: str
    metric: str
    metric_why: str = ""
    """Why it is not wall time, where nobody named it."""
    level: float
    minutes: float
    executions: int
    """Of each setting."""
    settings: list[Setting]
    caveats: list[str]
    study: str
    """Directory that keeps every execution."""
    next: str
    """The command to type next."""
    why: str
