"""Free memory that is touched before a run: how much, for whom, and where nothing is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import TWO_BY_TWO, record, spec_in, tools

from pagelab.record import Record
from pagelab.study import host_backing
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import StudyInterruptedError
from pagelab.study.plan import Condition
from pagelab.study.tools import Tools

MIB = 1 << 20
PEAKS = {"a/kernel": 5 * MIB, "a/4K": 3 * MIB, "b/kernel": 80 * MIB, "b/4K": 90 * MIB}
ONE_BY_TWO = TWO_BY_TWO.replace('[[workload]]\nname = "b"\ncommand = "true"\n', "")
Asked = list[tuple[str, int | None]]


def watched(asked: Asked, reports: bool = True, stop_after: int | None = None, thp: str = "madvise") -> Tools:
    """Tools whose runs need ``PEAKS``, and that note what was asked for before each."""
    machine = {"free_page_reporting": reports, "thp": {"enabled": thp}}

    def behave(condition: Condition) -> Record:
        if stop_after is not None and len(asked) == stop_after:
            raise KeyboardInterrupt
        asked.append((condition.name, condition.request.host_backed_bytes))
        return record(condition, peak_rss_bytes=PEAKS[condition.name])

    return replace(tools(behave), machine=lambda: {"machine": machine, "provenance": {}})


def with_room(peak: int) -> int:
    return peak + peak // 4 + 64 * MIB


def largest_so_far(asked: Asked) -> Asked:
    """The same runs, each with the largest peak that its workload had before, and room."""
    peaks = [[PEAKS[one] for one, _ in asked[:at] if one[0] == name[0]] for at, (name, _) in enumerate(asked)]
    return [(name, with_room(max(found)) if found else None) for (name, _), found in zip(asked, peaks, strict=True)]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Executions so far apart that nothing which one has freed is there for the next."""
    monkeypatch.setattr(host_backing, "_KEPT_S", -1.0)


@pytest.mark.usefixtures("slow")
def test_as_much_as_the_workload_has_needed_so_far_under_any_policy(tmp_path: Path) -> None:
    asked: Asked = []
    run_study(spec_in(tmp_path), tmp_path / "out", watched(asked))
    assert asked == largest_so_far(asked)
    last = {"a/kernel": 5 * MIB, "a/4K": 5 * MIB, "b/kernel": 90 * MIB, "b/4K": 90 * MIB}
    assert dict(asked) == {name: with_room(peak) for name, peak in last.items()}


def test_the_first_execution_has_what_the_trial_needed(tmp_path: Path) -> None:
    asked: Asked = []
    (tmp_path / "out").mkdir()
    run_study(spec_in(tmp_path), tmp_path / "out" / "trial" / "1", watched([]))
    run_study(spec_in(tmp_path), tmp_path / "out", watched(asked))
    assert asked[0][1] == with_room(90 * MIB)


@pytest.mark.usefixtures("slow")
def test_a_session_that_goes_on_knows_what_was_needed_before(tmp_path: Path) -> None:
    asked: Asked = []
    with pytest.raises(StudyInterruptedError):
        run_study(spec_in(tmp_path), tmp_path / "out", watched(asked, stop_after=9))
    resume_study(tmp_path / "out", watched(asked))
    assert len(asked) == 16
    assert asked == largest_so_far(asked)


def test_what_the_execution_before_has_just_freed_is_not_touched(tmp_path: Path) -> None:
    """Unless that was less than three quarters of the need."""
    asked: Asked = []
    run_study(spec_in(tmp_path), tmp_path / "out", watched(asked))
    expected = [touched for _, touched in largest_so_far(asked)]
    for at, (before, _) in enumerate(asked[:-1], start=1):
        found = [PEAKS[one] for one, _ in asked[:at] if one[0] == asked[at][0][0]]
        if found and PEAKS[before] >= max(found) * 3 / 4:
            expected[at] = None
    assert [touched for _, touched in asked] == expected
    assert 4 <= expected.count(None) <= 14


@pytest.mark.parametrize("step", ["setup", "teardown"])
def test_commands_between_two_executions_may_have_used_what_was_freed(tmp_path: Path, step: str) -> None:
    asked: Asked = []
    text = ONE_BY_TWO.replace('name = "a"\n', f'name = "a"\n{step} = "true"\n')
    run_study(spec_in(tmp_path, text), tmp_path / "out", watched(asked))
    assert asked == largest_so_far(asked)


def test_memory_is_touched_before_each_long_execution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_backing, "_SHORT_S", 0.0)
    asked: Asked = []
    run_study(spec_in(tmp_path), tmp_path / "out", watched(asked))
    assert asked == largest_so_far(asked)


@pytest.mark.parametrize(("pages", "thp"), [("2M", "madvise"), ("4K", "always")])
def test_memory_is_touched_before_each_execution_where_pages_are_huge(tmp_path: Path, pages: str, thp: str) -> None:
    asked: Asked = []
    text = TWO_BY_TWO.replace('pages = "4K"', f'pages = "{pages}"')
    run_study(spec_in(tmp_path, text), tmp_path / "out", watched(asked, thp=thp))
    assert asked == largest_so_far(asked)


@pytest.mark.parametrize(
    ("text", "reports", "expected"),
    [
        (TWO_BY_TWO, False, None),
        (f"host_backed = 0\n{TWO_BY_TWO}", True, 0),
        (f'host_backed = "7M"\n{TWO_BY_TWO}', False, 7 * MIB),
        (f'co_run = true\nmetric = "cpu_s"\n{ONE_BY_TWO}', True, None),
        (TWO_BY_TWO.replace('pages = "4K"', 'frames = "page-coloring"'), True, None),
    ],
)
def test_nothing_else_where_the_study_says_so_or_it_would_be_in_the_way(
    tmp_path: Path, text: str, reports: bool, expected: int | None
) -> None:
    asked: Asked = []
    run_study(spec_in(tmp_path, text), tmp_path / "out", watched(asked, reports))
    assert {found for _, found in asked} == {expected}
