"""The first line of an advice and its next command, by what the check found."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from time import monotonic

import numpy as np
import pytest

from pagelab.advise import answer, campaign
from pagelab.advise.campaign import Asked, Found
from pagelab.advise.choose import Choice, choose
from pagelab.advise.design import Region
from pagelab.advise.document import AdviceDocument, RegionGain
from pagelab.advise.effects import Effects
from pagelab.analysis.answer import Answer, answer_of
from pagelab.analysis.metrics import metric_named
from pagelab.analysis.model import Interval
from pagelab.cli.advise import _promise
from pagelab.study.progress import Silent
from pagelab.study.setting import KERNEL
from study.fakes import tools

TILE = 2 << 20
FASTER = answer_of(-0.127, Interval(-0.162, -0.0925, 0.95), 3e-5, 18, level=0.95, family=2)
SLOWER = answer_of(0.127, Interval(0.0925, 0.162, 0.95), 3e-5, 18, level=0.95, family=2)
UNCLEAR = answer_of(-0.04, Interval(-0.12, 0.05, 0.95), 0.4, 18, level=0.95, family=2)


def _found(chosen: list[bool], *, misses: bool = False) -> Found:
    regions = [Region("anon", at * TILE, (at + 1) * TILE) for at in range(len(chosen))]
    taken = np.array(chosen)
    choice = Choice(taken, 0.05, 0.01, 0.09, TILE * sum(chosen), 0)
    shares = np.full(len(chosen), 1 / len(chosen)) if misses else None
    return Found({"anon": len(chosen) * TILE}, regions, None, choice, 1, 40, "cpu_s", "", 0, 0, shares)


def _answered(advice: Answer | None, everything: Answer) -> dict[str, Answer]:
    return {"2M": everything} if advice is None else {"advice": advice, "2M": everything}


@pytest.mark.parametrize("misses", [False, True], ids=["mosaics", "misses"])
@pytest.mark.parametrize("advice", [UNCLEAR, SLOWER], ids=["unclear", "slower"])
def test_a_gain_of_everything_is_told_where_the_advice_is_not_confirmed(advice: Answer, misses: bool) -> None:
    found = _found([True, False], misses=misses)
    said = answer.verdict(found, _answered(advice, FASTER), metric_named("cpu_s"))
    assert "verything in 2M pages is 12.7% faster than the kernel's own way" in said.split(". ")[0]
    assert "is not confirmed" in said
    assert "anon 0–2M" in said


def test_a_budget_without_room_is_told_the_least_that_gains() -> None:
    """Regression: of regions of 4 MiB without a gain and of 64 MiB with one, "--budget 4M"."""
    regions = [Region("anon", 0, 2 * TILE), Region("anon", 2 * TILE, 34 * TILE), Region("anon", 34 * TILE, 98 * TILE)]
    draws = np.array([[0.0, 0.1, 0.2]]).repeat(100, axis=0) + np.linspace(-0.01, 0.01, 100)[:, None]
    effects = Effects(draws.mean(axis=0), (draws > 0).mean(axis=0), draws, 0.1)
    choice = choose(regions, effects, 8 * TILE)
    found = replace(_found([False] * 3), regions=regions, effects=effects, choice=choice)
    said = answer.verdict(found, _answered(None, UNCLEAR), metric_named("cpu_s"))
    assert said.startswith("The budget has no room for any region that gains: the smallest of 2 has 64 MiB, ")
    assert "give it --budget 64M, or more --minutes" in said


@pytest.mark.parametrize(("got", "kept"), [(-0.05, "within"), (-0.2, "above"), (0.01, "below"), (None, None)])
def test_the_promise_is_compared_with_what_it_was_made_against(got: float | None, kept: str | None) -> None:
    """Regression: promised against 4K pages, and checked against the kernel's own way alone."""
    choice = _found([True]).choice
    assert choice is not None
    found = answer._promise(choice, replace(FASTER, change=got), metric_named("wall_s"))
    assert found is not None
    assert found.kept == kept
    regions = [RegionGain(pool="anon", start_bytes=0, end_bytes=TILE, gain_percent=5, low_percent=1, high_percent=9,
                          chosen=True)]  # fmt: skip
    told = AdviceDocument(
        command=["prog"], verdict="", metric="wall_s", budget_bytes=None, used_bytes={}, huge_bytes=0, left_out=0,
        promised_percent=5, promised_low_percent=1, promised_high_percent=9, promise=found, regions=regions, rounds=1,
        executions=9, checked=[], resident_base_bytes=0, resident_huge_bytes=0, caveats=[], directory="", policy=None,
        next="", why="",
    )  # fmt: skip
    (line,) = _promise(told)
    assert line.startswith("advice against 4K pages: promised a gain of +5.0% (+1.0% to +9.0%); ")
    unsized = "; got in the check, of 18 pairs: faster, size unknown"
    assert line.endswith(unsized if got is None else f"(+9.2% to +16.2%), {kept} what was promised")
    without = found.model_copy(update={"change_percent": None, "pairs": 0})
    (line,) = _promise(told.model_copy(update={"promise": without}))
    assert line.endswith("; the check has no whole pair of both")


def test_what_nothing_confirms_is_not_confirmed() -> None:
    found = _found([True, False])
    said = answer.verdict(found, _answered(UNCLEAR, UNCLEAR), metric_named("cpu_s"))
    assert said.startswith("Not confirmed: ")


def test_a_gain_that_was_not_seen_may_have_been_missed() -> None:
    """Regression: "no region gains by 2M pages", of an interval that reached +8.6%."""
    draws = np.array([[0.05, -0.01], [0.086, 0.0]]).repeat(100, axis=0)
    effects = Effects(draws.mean(axis=0), (draws > 0).mean(axis=0), draws, 0.1)
    found = replace(_found([False, False]), effects=effects)
    said = answer.verdict(found, _answered(None, UNCLEAR), metric_named("cpu_s"))
    assert said.startswith(
        "Nothing to advise yet: no region was seen to gain by 2M pages, but one may gain up to 8.6%; "
        "everything in 2M pages"
    )
    by_misses = answer.verdict(_found([False, False], misses=True), _answered(None, UNCLEAR), metric_named("cpu_s"))
    assert by_misses.startswith("Nothing to advise: no region has misses; everything in 2M pages")


@pytest.mark.parametrize(
    ("chosen", "advice", "everything", "budget", "command"),
    [
        ([True, False], UNCLEAR, FASTER, None, "pagelab run --pages 2M -- prog"),
        ([False, False], None, FASTER, None, "pagelab run --pages 2M -- prog"),
        ([True, False], FASTER, FASTER, None, "pagelab run --policy policy.toml -- prog"),
        # Everything needs more huge pages than the budget has.
        ([True, False], UNCLEAR, FASTER, TILE, "pagelab advise --minutes "),
        ([True, False], UNCLEAR, UNCLEAR, None, "pagelab advise --minutes "),
        ([True, False], SLOWER, SLOWER, None, "pagelab report check"),
    ],
)
def test_the_next_command_follows_from_what_was_found(
    chosen: list[bool], advice: Answer | None, everything: Answer, budget: int | None, command: str
) -> None:
    asked = Asked(("prog",), ".", budget=budget)
    policy = Path("policy.toml") if any(chosen) else None
    typed, _ = answer.next_command(asked, _found(chosen), _answered(advice, everything), Path(), policy)
    assert typed.startswith(command)


def test_more_executions_are_of_what_was_measured_and_take_a_day_at_most() -> None:
    """Regression: the next command had lost the metric, so that it would have compared something else."""
    regex = r"(?P<name>op) (?P<value>\d+) (?P<unit>ms)"
    asked = Asked(("prog",), ".", minutes=1000.0, metric="measure.op", regex=regex, timeout_s=9.5, seed=2)
    answers = _answered(UNCLEAR, UNCLEAR)
    typed, _ = answer.next_command(asked, _found([True, False]), answers, Path(), Path("policy.toml"))
    command = ["pagelab", "advise", "--minutes", "1440", "--metric", "measure.op", "--measure-regex", regex]
    assert shlex.split(typed) == [*command, "--timeout", "9.5", "--seed", "2", "--", "prog"]
    usual, _ = answer.next_command(Asked(("prog",), "."), _found([True, False]), answers, Path(), Path("policy.toml"))
    words = shlex.split(usual)
    assert [*words[:3], *words[4:]] == ["pagelab", "advise", "--minutes", "--", "prog"]


@pytest.mark.parametrize(("advice", "beside"), [(KERNEL, True), ("", False)], ids=["advice", "none"])
def test_the_question_of_the_check_says_what_4k_is_for(
    advice: str, beside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: its report answered for 4K against the kernel's own way, which nobody had asked."""
    monkeypatch.setattr(campaign, "run_own", lambda *_: None)
    campaign._check(Asked(("prog",), "."), tmp_path, advice, KERNEL, (monotonic(), 1.0), tools(), Silent())
    question = tomllib.loads((tmp_path / campaign.CHECK / "study.toml").read_text())["question"]
    assert ("4K is beside them only for the gain of advice against it" in question) == beside
    assert question.startswith("What do advice and 2M change" if beside else "What does 2M change")
