"""Stores the limits of a comparison (``pagelab compare --fail-if``) with its study, and reads them for its report."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any, Literal

from pagelab.study.store import Store

_OUTCOMES = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


@dataclass(frozen=True)
class Limit:
    """A limit and its judgement."""

    text: str
    """The limit as it was written: ``ratio>3%``."""
    outcome: Literal["pass", "fail", "inconclusive"]
    ratio: float | None = None
    """The limit as a change (a fraction); None where it is not on the ratio within pairs."""
    needed: int | None = None
    """Executions of each command that would decide an inconclusive limit if the change stays the same."""

    def __str__(self) -> str:
        """The limit in words: ``limit 3%``; with its sign or its metric where these are not the usual ones."""
        return f"limit {self.text.removeprefix('ratio>')}".replace("-", "−")


def keep_limits(store: Store, limits: Iterable[Limit]) -> None:
    """Stores the judgements of limits on the executions that the study has now."""
    store.put_event("limits", {"runs": store.runs().height, "judged": [list(astuple(one)) for one in limits]})


def limits_of(events: Iterable[dict[str, Any]], runs: int) -> tuple[Limit, ...]:
    """The limits of the last judgement; none where executions were added since."""
    kept = [event["data"] for event in events if event["kind"] == "limits"]
    if not kept or kept[-1]["runs"] != runs:
        return ()
    return tuple(Limit(*judged) for judged in kept[-1]["judged"])


def with_limits(sentence: str, limits: tuple[Limit, ...]) -> str:
    """The sentence with the outcomes: ``B is 45.6% slower than A (…): FAIL, limit 3%.``"""
    if not limits:
        return sentence
    told = [f"{_OUTCOMES[one.outcome]}, {one}" for one in limits]
    return f"{sentence.removesuffix('.')}: {'; '.join(told)}."
