"""What a diagnosis asks and finds: plain frozen data. ``diagnosis.json`` is a :class:`Diagnosis`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.diagnose.spread import Range

SCHEMA = "pagelab.diagnosis/1"
Verdict = Literal["cause", "part", "adds", "ruled-out", "undecided", "left-out"]
Outcome = Literal["nothing-to-explain", "unexplained", "confirmed", "not-confirmed"]
Mean = Literal["unchanged", "changed", "undecided"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Settings(_Model):
    """What was asked. Stored in the directory, so that an interrupted diagnosis can be continued."""

    argv: list[str] = Field(min_length=1)
    cwd: str
    minutes: float = Field(default=10.0, gt=0, le=100_000)
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    level: float = Field(default=0.95, gt=0.5, lt=1)
    unchanged: float = Field(default=0.01, gt=0, lt=1)
    """The mean is "unchanged" when the whole interval of its shift lies within ± this fraction."""
    negligible: float = Field(default=0.01, gt=0, lt=1)
    """There is nothing to explain when the default's spread surely lies below this fraction of its mean."""
    metric: str = "wall_s"
    regex: str | None = None
    timeout_s: float | None = Field(default=None, gt=0)


class Pin(_Model):
    """One way to pin a source: a policy of the study."""

    name: str
    keys: dict[str, Any] = Field(default_factory=dict)
    """Of ``[[policy]]`` in study.toml."""
    how: str = ""
    """What to type, or to do, to have it."""


class Source(_Model):
    """Something that can make executions differ."""

    key: str
    label: str
    pins: list[Pin]
    drawn: bool = False
    """The pins are a sample of many possible values."""
    left_out: str | None = None


class Interval(_Model):
    """An estimate with its interval; of fractions, not percent."""

    estimate: float
    low: float
    high: float
    level: float

    @classmethod
    def of(cls, found: Range) -> Interval:
        return cls(estimate=found.estimate, low=found.low, high=found.high, level=found.level)


class Value(_Model):
    """One pinned value as it was seen."""

    name: str
    how: str
    mean: float
    cv: float


class Finding(_Model):
    """One source, judged."""

    key: str
    label: str
    verdict: Verdict
    reason: str | None = None
    """Why it was left out."""
    sd_ratio: Interval | None = None
    deviation_ratio: Interval | None = None
    """Ratio of mean absolute deviations: like the SD ratio, but hardly moved by a few extreme executions."""
    removed: Interval | None = None
    """1 - SD ratio²: the part of the default's variance that is gone."""
    p: float | None = None
    p_holm: float | None = None
    mean_shift: Interval | None = None
    share: Interval | None = None
    """Of the variance that the choice among the pinned values makes (law of total variance)."""
    share_p_holm: float | None = None
    values_differ: bool = False
    values: list[Value] = Field(default_factory=list)


class Confirmation(_Model):
    """Fresh, interleaved executions of the default and of what is recommended: what may be quoted."""

    recommended: str
    source: str
    how: str
    executions: int
    cv_default: float
    cv_recommended: float
    sd_ratio: Interval
    deviation_ratio: Interval
    p: float
    mean_shift: Interval
    mean: Mean
    confirmed: bool
    minutes_for_mean: float | None = None
    """A budget with which the mean could be told to be unchanged, where it was undecided."""


class Diagnosis(_Model):
    """The whole answer."""

    schema_: Literal["pagelab.diagnosis/1"] = Field(default="pagelab.diagnosis/1", alias="schema")
    settings: Settings
    outcome: Outcome
    headline: str
    sentences: list[str]
    metric: str
    blocks: int
    executions: int
    default_mean: float
    default_spread: Interval
    """Standard deviation between executions over the mean, everything at its default."""
    findings: list[Finding]
    interactions: list[str]
    notes: list[str]
    confirmation: Confirmation | None = None
    spent_minutes: float
    wanted_minutes: float | None = None
    """A budget that would find a source that halves the spread in four diagnoses of five; None: this one did."""
