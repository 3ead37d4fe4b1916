"""Settings and results of a diagnosis, as plain frozen data. ``diagnosis.json`` is a :class:`Diagnosis`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from pagelab.diagnose.spread import Range
from pagelab.terminal import Shown

SCHEMA = "pagelab.diagnosis/2"
Verdict = Literal["cause", "part", "adds", "ruled-out", "undecided", "left-out"]
VERDICTS: dict[Verdict, str] = {
    "cause": "most of it",
    "part": "part of it",
    "adds": "adds spread",
    "ruled-out": "not the main cause",
    "undecided": "no effect seen",
    "left-out": "left out",
}
Outcome = Literal["nothing-to-explain", "unexplained", "confirmed", "refuted", "undecided"]
Result = Literal["confirmed", "refuted", "undecided"]
Mean = Literal["unchanged", "changed", "undecided"]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Settings(_Model):
    """The request. Stored in the directory, so that an interrupted diagnosis can be continued."""

    argv: list[str] = Field(min_length=1)
    cwd: str
    minutes: float = Field(default=10.0, gt=0, le=100_000)
    seed: int = Field(default=1, ge=0, lt=1 << 63)
    level: float = Field(default=0.95, gt=0.5, lt=1)
    unchanged: float = Field(default=0.01, gt=0, lt=1)
    """The mean is "unchanged" when the whole interval of its shift lies within ± this fraction."""
    negligible: float = Field(default=0.01, gt=0, lt=1)
    """There is nothing to explain when the whole interval of the default's spread lies below this fraction."""
    metric: str = "wall_s"
    regex: str | None = None
    timeout_s: float | None = Field(default=None, gt=0)


class Pin(_Model):
    """One way to pin a source: a policy of the study."""

    name: str
    keys: dict[str, Any] = Field(default_factory=dict)
    """Of ``[[policy]]`` in study.toml."""
    how: str = ""
    """The command to type, or the step to take, to have it."""
    control_of: str | None = None
    """Of a control: the only pin that it is the control of; None: of every pin of its source."""


class Source(_Model):
    """Something that can make executions differ."""

    key: str
    label: str
    pins: list[Pin]
    controls: list[Pin] = Field(default_factory=list)
    """The conditions that the pins are compared with: they have the side effects of pinning. Empty: the default."""
    against: str = "the default"
    """The controls in words."""
    parts: list[str] = Field(default_factory=list)
    """Names of the pins that are combined in this one."""
    drawn: bool = False
    """The pins are a random sample of many possible values."""
    left_out: str | None = None

    def controls_of(self, pin: Pin) -> list[Pin]:
        """The controls with which ``pin`` is compared."""
        return [each for each in self.controls if each.control_of in (None, pin.name)]


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
    """Geometric coefficient of variation, as every spread of a diagnosis."""
    sd_log: float
    """Standard deviation of the log times."""


class Finding(_Model):
    """One source, judged."""

    key: str
    label: str
    verdict: Verdict
    reason: str | None = None
    """Why it was left out."""
    against: str = "the default"
    """The condition that it was compared with."""
    blocks: int = 0
    """In which every execution of the comparison ended."""
    sd_ratio: Interval | None = None
    """Standard deviation of log times with the source pinned over that of its control."""
    deviation_ratio: Interval | None = None
    """Ratio of mean absolute deviations: like the SD ratio, but hardly moved by a few extreme executions."""
    sd_ratio_beside: Interval | None = None
    """``sd_ratio`` of the times without what the machine did to all executions of a block; null: not known."""
    rests_beside: bool = False
    """The test and its direction rest on those times."""
    removed: Interval | None = None
    """1 - SD ratio²: the part of the control's variance that is gone."""
    most_removed: float | None = None
    """Upper end of ``removed`` at the joint level of all sources: what "not the main cause" rests on."""
    p: float | None = None
    p_holm: float | None = None
    mean_shift: Interval | None = None
    share: Interval | None = None
    """Of drawn values: of the variance over random values, what the value makes (intraclass correlation)."""
    share_p_holm: float | None = None
    values_differ: bool = False
    values: list[Value] = Field(default_factory=list)

    @property
    def told(self) -> str:
        """The verdict in words: the effect of pinning on the spread, and any difference between values."""
        return VERDICTS[self.verdict] + (", its value matters" if self.values_differ else "")


class Contrast(_Model):
    """The recommendation against one thing that it is compared with, in fresh executions."""

    name: str
    """Of the condition."""
    against: str
    """In words."""
    cv_against: float
    sd_ratio: Interval
    deviation_ratio: Interval
    removed: Interval
    p: float
    seen: float
    """Share of the variance that was gone in the exploration."""
    power: float
    """The planned probability that this number of executions confirms an effect as large as the observed one."""
    power_of_half: float
    """The same of half of that effect."""
    result: Result


class Confirmation(_Model):
    """Fresh, interleaved executions of the default, of the recommendation and of its control: the quotable figures."""

    recommended: str
    source: str
    how: str
    executions: int
    """Of each."""
    cv_default: float
    cv_recommended: float
    contrasts: list[Contrast]
    """Against the default (what the user gains); where it has one, against the control (whether it is the cause)."""
    result: Result
    mean_shift: Interval | None
    """null: executions differ so much that the shift of the mean has no interval; ``mean`` is then ``undecided``."""
    mean: Mean
    needed: int
    """Executions of each that would find the effect that was seen in four of five confirmations."""
    enough: int
    """Executions of each that were wanted: for the spread, and for the mean."""
    minutes_for_spread: float | None = None
    """A budget with ``needed`` executions, where the result is undecided."""
    needed_for_half: int | None = None
    """Executions of each for half of the effect, where ``needed`` were there and did not decide."""
    minutes_for_mean: float | None = None
    """A budget that would show the mean to be unchanged, if that was undecided."""

    @property
    def confirmed(self) -> bool:
        return self.result == "confirmed"

    @property
    def of_default(self) -> Contrast:
        return self.contrasts[0]


class Typical(_Model):
    """Times by default, in the metric's unit."""

    low: float
    high: float
    two: bool
    """Executions take either of two times, whose medians these are; else the tenth and the ninetieth percentile."""


class Caveat(_Model):
    """A warning with its severity."""

    severity: Literal["serious", "warning", "info"]
    text: str


class Diagnosis(Shown, _Model):
    """The whole answer; printed as its sentence and a line a source."""

    schema_: Literal["pagelab.diagnosis/2"] = Field(default="pagelab.diagnosis/2", alias="schema")
    settings: Settings
    outcome: Outcome
    headline: str
    sentences: list[str]
    metric: str
    blocks: int
    executions: int
    default_mean: float
    default_spread: Interval
    """Geometric coefficient of variation between executions, everything at its default."""
    typical: Typical | None = None
    machine: Interval | None = None
    """Share of the default's variance that all executions of a block have in common; null: none to be seen."""
    findings: list[Finding]
    interactions: list[str]
    notes: list[str]
    """Further facts; the caveat is not among them."""
    caveat: Caveat | None = None
    confirmation: Confirmation | None = None
    spent_minutes: float
    wanted_minutes: float | None = None
    """A budget that would find a source that halves the spread in four diagnoses of five (fewer where times have a long
    tail); None: this one did."""
    waited: str | None = None
    """Wall time was judged of a program that waited for a processor and for little else: the words on it."""

    def __str__(self) -> str:
        return Shown.__str__(self)

    def _title(self) -> str:
        return self.headline

    def _rows(self) -> list[tuple[str, str]]:
        return [(one.label, one.told) for one in self.findings]


def lowering(found: Sequence[Finding]) -> list[Finding]:
    """The sources whose pin lowers the spread."""
    return [one for one in found if one.verdict in ("cause", "part")]
