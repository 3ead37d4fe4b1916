"""Describes non-determinism in words, without terms of statistics."""

from __future__ import annotations

from collections.abc import Sequence

from pagelab.analysis import wording
from pagelab.analysis.nondeterminism_model import Family, Ranking
from pagelab.stats.nondeterminism import Metric

FEWEST_GROUPS = 2
"""Fewest programs for percentages: those of one program mean nothing."""
NAMES = {
    Metric.MEAN.value: "mean time",
    Metric.MEASUREMENT.value: "spread inside executions",
    Metric.UNCLASSIFIED.value: "spread of everything",
    Metric.EXECUTION.value: "spread between executions",
}
"""Names of the metrics on the page."""


def speed(families: Sequence[Family]) -> str:
    """A sentence: shares of programs in which each condition was among the fastest."""
    clauses = [_clause(family, Metric.MEAN, "fastest") for family in families]
    return _joined("Speed", [one for one in clauses if one])


def steadiness(families: Sequence[Family]) -> str:
    """A sentence: shares of programs in which each condition was among those with the least spread."""
    clauses = []
    for family in families:
        metric = Metric.EXECUTION if family.repeated else Metric.UNCLASSIFIED
        clauses.append(_clause(family, metric, "steadiest"))
    return _joined("Steadiness from one execution to the next", [one for one in clauses if one])


def programs(family: Family, count: int) -> str:
    """A number of programs in words: ``48 programs measured repeatedly``."""
    how = "measured repeatedly" if family.repeated else "timed as a whole"
    return f"{wording.count(count, 'program')} {how}"


def _joined(what: str, clauses: Sequence[str]) -> str:
    return f"{what}: {', and '.join(clauses)}." if clauses else ""


_ALIKE = "no policy’s interval lies clear of another’s in any of"
"""Ranks rest on intervals that do not pair the executions; a test within pairs may still see a difference."""


def tells_nothing(sentence: str) -> bool:
    """Whether no clause of the sentence distinguishes policies."""
    return _ALIKE in sentence and " was among the " not in sentence


def _clause(family: Family, metric: Metric, best: str) -> str:
    ranking = family.ranking(metric.value)
    if ranking is None or ranking.groups < FEWEST_GROUPS:
        return ""
    if all_alike(ranking):
        return f"{_ALIKE} {programs(family, ranking.groups)}"
    ordered = sorted(family.conditions, key=lambda name: -_first(ranking, name))
    shares = [f"{_first(ranking, name):.0f}%" for name in ordered]
    others = ", ".join(f"{name} {share}" for name, share in zip(ordered[1:], shares[1:], strict=True))
    return f"{ordered[0]} was among the {best} in {shares[0]} of {programs(family, ranking.groups)} ({others})"


def all_alike(ranking: Ranking) -> bool:
    """Whether no condition is better than another in any program, so that all are best in all programs."""
    return all(percent[0] == 100 for percent in ranking.share(0.0).percent.values())


def _first(ranking: Ranking, condition: str) -> float:
    return ranking.share(0.0).percent[condition][0]
