"""Limits of a comparison (``pagelab compare --fail-if``) as they are kept with its study, for its report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, Literal

from pagelab.study.store import Store

_OUTCOMES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


@dataclass(frozen=True)
class Limit:
    """A limit, and how it was judged."""

    text: str
    """As it was written: ``ratio>3%``."""
    outcome: Literal["pass", "fail", "inconclusive"]
    ratio: float | None = None
    """The change at which it stands, a fraction; None where it is not on the ratio of pairs."""
    needed: int | None = None
    """Executions of each with which an inconclusive one would be decided if the change stays what it is."""

    def __str__(self) -> str:
        """``limit 3%``; with its sign or its metric where it is not the usual one."""
        return f"limit {self.text.removeprefix('ratio>')}".replace("-", "−")


def keep_limits(store: Store, limits: Iterable[Limit]) -> None:
    """Keeps how limits were judged on the executions that the study has now."""
    store.put_event("limits", {"runs": store.runs().height, "judged": [list(astuple(one)) for one in limits]})


def limits_of(events: Iterable[dict[str, Any]], runs: int) -> tuple[Limit, ...]:
    """Limits as they were judged last; none where executions were added since."""
    kept = [event["data"] for event in events if event["kind"] == "limits"]
    if not kept or kept[-1]["runs"] != runs:
        return ()
    return tuple(Limit(*judged) for judged in kept[-1]["judged"])


def with_limits(sentence: str, limits: tuple[Limit, ...]) -> str:
    """``B is 45.6% slower than A (…): FAIL, limit 3%.``"""
    if not limits:
        return sentence
    told = [f"{_OUTCOMES[one.outcome]}, {one}" for one in limits]
    return f"{sentence.removesuffix('.')}: {'; '.join(told)}."
