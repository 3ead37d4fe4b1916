"""The bench of power: what its summary counts, what a killed campaign goes on with, and its own statistics."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench.power import campaign, summary, work
from bench.power.campaign import ALSO, EVERY, MAIN, Place, Row, next_size, places, rows_of
from bench.power.tools import BY_NAME, TOOLS, Answer, Asked, Decision, perfgate_answer, student_interval, welch
from scipy.stats import beta, ttest_ind


def row(tool: str, planted: float, answer: Answer | None, repetition: int = 0, kind: str = "memory") -> Row:
    place = Place(repetition, kind, planted, tool)
    return Row(place, 15.0, 10.0, 14.0, answer, None if answer else "it failed", "2026-01-01T00:00", (1.0, 1.5), 0.25)


def answer(change: float, half: float, decision: Decision, read: Decision | None = None) -> Answer:
    return Answer(change, change - half, change + half, decision, 30, read)


def cell(rows: list[Row], tool: str, planted: float) -> summary.Cell:
    (found,) = (one for one in summary.cells(rows) if (one.tool, one.planted) == (tool, planted))
    return found


def test_false_alarms_are_decisions_where_nothing_is_planted() -> None:
    said: list[Decision] = ["none", "slower", "none", "faster", "none"]
    rows = [row("pagelab", 0.0, answer(0.01 * i, 0.025, one), i) for i, one in enumerate(said)]
    found = cell(rows, "pagelab", 0.0)
    assert (found.wrong.found, found.wrong.of) == (2, 5)
    assert (found.held.found, found.held.of) == (3, 5)  # ± 2.5% about 0, 1, 2, 3 and 4%
    assert found.half_width == pytest.approx(0.025)
    assert found.change == pytest.approx(0.02)


def test_a_miss_is_whatever_is_not_slower_where_b_is() -> None:
    said: list[Decision] = ["slower", "none", "faster", "slower"]
    rows = [row("duet", 0.05, answer(0.05, 0.01 * (i + 1), one), i) for i, one in enumerate(said)]
    found = cell(rows, "duet", 0.05)
    assert (found.wrong.found, found.wrong.of, found.held.found) == (2, 4, 4)
    assert found.half_width == pytest.approx(0.025)


def test_a_question_without_an_answer_is_a_miss_and_no_false_alarm() -> None:
    for planted, wrong, of in ((0.0, 0, 1), (0.05, 1, 2)):
        rows = [row("pyperf", planted, answer(planted, 0.01, "slower" if planted else "none"))]
        found = cell([*rows, row("pyperf", planted, None, 1)], "pyperf", planted)
        assert (found.wrong.found, found.wrong.of, found.silent, found.held.of) == (wrong, of, 1, 1)
    assert summary.cells([row("pyperf", 0.0, None)]) == []


def test_what_hyperfine_prints_is_judged_beside_what_its_times_say() -> None:
    rows = [row("hyperfine", 0.05, answer(0.05, 0.02, "slower", "none"))]
    assert cell(rows, "hyperfine", 0.05).wrong.found == 0
    assert cell(rows, summary.READ, 0.05).wrong.found == 1


def test_shares_have_the_exact_interval() -> None:
    low, high = summary.Count(3, 50).interval
    assert low == pytest.approx(float(beta.ppf(0.025, 3, 48)))
    assert high == pytest.approx(float(beta.ppf(0.975, 4, 47)))
    assert summary.Count(0, 50).interval[0] == 0
    assert summary.Count(50, 50).interval[1] == 1
    assert str(summary.Count(3, 50)) == "3 of 50 (1–17%)"


def test_widths_are_compared_within_a_repetition_and_a_planted_difference() -> None:
    rows = []
    for repetition, (own, other) in enumerate([(0.01, 0.04), (0.02, 0.05), (0.09, 0.1)]):
        rows.append(row("pagelab", 0.0, answer(0, own, "none"), repetition))
        rows.append(row("hyperfine", 0.0, answer(0, other, "none", "none"), repetition))
    rows.append(row("hyperfine", 0.05, answer(0, 1.0, "none", "none"), 0))
    assert summary.against_hyperfine(rows, "memory") == (pytest.approx(0.4), 3)
    told = summary.verdicts(rows)
    assert told[0] == "memory: pagelab's half-width is 0.40 of hyperfine's (median of 3 repetitions; goal ≤ 0.5: met)"
    # Of hyperfine's estimates, all 0, one is 5% off.
    assert told[1] == (
        "memory: 95% of pagelab's estimates are within 0.00% of what was planted, of hyperfine's within 4.25%; "
        "intervals hold it in 3 of 3 (29–100%) and 4 of 4 (40–100%)"
    )
    assert told[2].startswith("memory: false alarms of pagelab 0 of 3 (0–71%) (goal ≤ 5%: met, as far as so many tell")
    worse = [replace(one, answer=answer(0, 0.2, "slower")) if one.place.tool == "pagelab" else one for one in rows]
    assert all("**missed**" in one for one in summary.verdicts(worse * 20)[:1])


def test_many_false_alarms_miss_the_goal() -> None:
    rows = [row("pagelab", 0.0, answer(0.0, 0.01, "slower" if i < 8 else "none"), i) for i in range(50)]
    (told,) = summary.verdicts(rows)
    assert told == "memory: false alarms of pagelab 8 of 50 (7–29%) (goal ≤ 5%: **missed**)"


def test_a_share_above_the_goal_is_missed_even_where_it_may_be_chance() -> None:
    rows = []
    for kind, alarms in (("compute", 2), ("memory", 0)):
        said: list[Decision] = ["slower" if i < alarms else "none" for i in range(19)]
        rows += [row("pagelab", 0.0, answer(0.0, 0.01, one), i, kind) for i, one in enumerate(said)]
        rows += [row("pagelab", 0.05, answer(0.05, 0.01, "slower"), 0, kind)]
        rows += [row("duet", 0.05, answer(0.05, 0.1, "none"), 0, kind)]
    told = summary.verdicts(rows)
    assert told[0] == "compute: false alarms of pagelab 2 of 19 (1–33%) (goal ≤ 5%: **missed**, which may be chance)"
    assert told[1] == "compute: of 5% pagelab missed 0 of 1 (0–98%), the others 100–100%"
    assert told[2].endswith("0 of 19 (0–18%) (goal ≤ 5%: met, as far as so many tell)")
    assert told[4] == "all kinds: false alarms of pagelab 2 of 38 (1–18%) (goal ≤ 5%: **missed**, which may be chance)"


def test_every_tool_is_asked_about_every_pair_in_every_repetition() -> None:
    found = list(places(EVERY + 1, seed=1))
    for repetition in range(EVERY + 1):
        planted = [*MAIN, *(ALSO if repetition % EVERY == 0 else ())]
        wanted = {Place(repetition, kind, p, tool.name) for kind in work.KINDS for p in planted for tool in TOOLS}
        here = [place for place in found if place.repetition == repetition]
        assert len(here) == len(wanted)
        assert set(here) == wanted
    assert list(places(2, seed=1)) == found[: len(list(places(2, seed=1)))]
    first = [place.tool for place in found if (place.kind, place.planted) == ("memory", 0.0)]
    assert len({tuple(first[i : i + len(TOOLS)]) for i in range(0, len(first), len(TOOLS))}) > 1  # not one fixed order


def test_fewer_tools_are_asked_the_same_questions_in_the_same_order() -> None:
    some = ("pagelab", "hyperfine")
    assert list(places(EVERY, 1, some)) == [place for place in places(EVERY, 1) if place.tool in some]


def test_a_killed_campaign_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "results" / "power.jsonl"
    asked: list[str] = []

    def ask(tool: str, fails_after: int) -> Answer:
        if len(asked) == fails_after:
            raise KeyboardInterrupt
        asked.append(tool)
        return answer(0.0, 0.01, "none", "none")

    def use(fails_after: int) -> None:
        for name, tool in list(BY_NAME.items()):
            fake = replace(tool, ask=lambda _asked, name=name: ask(name, fails_after))
            monkeypatch.setitem(BY_NAME, name, fake)

    steps = dict.fromkeys(work.KINDS, 100.0)
    monkeypatch.setattr(campaign, "compiled", lambda _directory: "/bin/true")
    monkeypatch.setattr(campaign, "calibrated", lambda program: work.Work(program, steps))
    monkeypatch.setattr(campaign, "versions", lambda _tools: {})
    use(fails_after=7)
    with pytest.raises(KeyboardInterrupt):
        campaign.run(file, tmp_path, 15, 1, 1, None)
    whole = file.read_text()
    file.write_text(whole + whole.splitlines()[-1][:40])  # the kill met a line that was being written
    assert len(rows_of(file)) == 7
    use(fails_after=10_000)
    campaign.run(file, tmp_path, 15, 1, 1, None)
    rows = rows_of(file, 15)
    assert [one.place for one in rows] == list(places(1, 1))
    assert len(asked) == len(rows)
    assert rows_of(file, 8) == []
    begun = campaign.begun(file)
    assert begun is not None
    assert begun["work"]["steps_per_run"] == steps
    campaign.run(file, tmp_path, 15, 1, 1, None)
    assert rows_of(file, 15) == rows  # nothing is left to ask


def test_the_size_of_a_question_follows_what_the_last_ones_took() -> None:
    counted, timed = BY_NAME["perfgate"], BY_NAME["pagelab"]
    assert next_size(counted, [], 15, 0.1) == counted.first
    assert next_size(counted, [], 0.5, 0.1) == 5
    before = [replace(row("perfgate", 0.0, answer(0, 1, "none")), size=10, took_s=2.0)]
    assert next_size(counted, before, 15, 0.1) == 75
    assert next_size(timed, [], 15, 0.1) == 15 - timed.first
    before = [replace(row("pagelab", 0.0, answer(0, 1, "none")), size=9.0, took_s=11.0)]
    assert next_size(timed, before, 15, 0.1) == 13
    assert next_size(timed, before, 2, 0.1) == timed.fewest
    unanswered = [replace(row("pagelab", 0.0, None), size=9.0, took_s=99.0)]
    assert next_size(timed, unanswered, 15, 0.1) == 15 - timed.first


@pytest.mark.parametrize("sizes", [(12, 12), (7, 30)])
def test_intervals_of_two_samples_are_those_of_scipy(sizes: tuple[int, int]) -> None:
    random = np.random.default_rng(3)
    a, b = random.normal(50, 4, sizes[0]), random.normal(53, 9, sizes[1])
    for found, equal in ((welch(a, b), False), (student_interval(a, b), True)):
        interval = ttest_ind(b, a, equal_var=equal).confidence_interval(0.95)
        assert found == pytest.approx(tuple(x / a.mean() for x in (b.mean() - a.mean(), interval.low, interval.high)))


def test_perfgates_answer_is_its_own() -> None:
    stats = {
        "baseline_wall_ms": {"mean": 50.0},
        "wall_diff_ms": {
            "mean": 2.5,
            "count": 20,
            "significance": {"ci_lower": 0.5, "ci_upper": 4.5, "significant": True},
        },
    }
    assert perfgate_answer(stats) == Answer(0.05, 0.01, 0.09, "slower", 20)


def test_b_has_so_much_more_work_than_all_of_a() -> None:
    found = work.Work("work", {"compute": 61e6, "memory": 500_000.0})
    for kind, more in (("compute", 3_050_000), ("memory", 25_000)):
        a, b = found.commands(kind, 0.05)
        assert int(b[2]) - int(a[2]) == more
        assert found.commands(kind, 0.0)[0] == found.commands(kind, 0.0)[1]


def test_each_command_of_a_duet_has_its_own_time(tmp_path: Path) -> None:
    found = BY_NAME["duet"].ask(Asked((["sleep", "0.05"], ["sleep", "0.1"]), 1.0, tmp_path, 1))
    assert found.decision == "slower"
    assert 0.5 < found.change < 1.2
    assert found.executions >= 5


def test_a_row_is_read_as_it_was_written() -> None:
    one = row("pagelab", 0.05, answer(0.05, 0.01, "slower"))
    assert Row.read(json.loads(one.line())["row"]) == one
