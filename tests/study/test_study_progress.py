"""What a session shows while it runs."""

from __future__ import annotations

import io
from time import sleep

import pytest

from pagelab.study.progress import Lines, TimeLeft, for_terminal, meanwhile, shown_duration


def test_time_left_is_the_sum_of_the_conditions_medians() -> None:
    left = TimeLeft([(0, 1.0), (0, 9.0), (0, 2.0), (1, 10.0)], remaining=[0, 0, 1, 2])
    assert left.seconds() == 2 * 2.0 + 10.0 + 6.0, "a condition that has not run counts as the median of the others"
    left.finished(1, 20.0)
    assert left.seconds() == 2 * 2.0 + 8.5


def test_nothing_is_known_before_the_first_run() -> None:
    assert TimeLeft([], [0, 1]).seconds() is None


def test_durations_as_people_write_them() -> None:
    assert [shown_duration(s) for s in (0.2, 59.4, 60, 3599, 3600, 7500)] == [
        "0 s",
        "59 s",
        "1 min 00 s",
        "59 min 59 s",
        "1 h 00 min",
        "2 h 05 min",
    ]


def test_without_a_terminal_there_are_plain_lines_and_failures_always_show() -> None:
    stream = io.StringIO()
    progress = for_terminal(stream)
    assert isinstance(progress, Lines)
    progress.start("s", 3, 0, None)
    progress.finished("a/b", "failed", "ended with exit code 3", 5.0)
    progress.finished("a/b", "ok", None, 2.0)
    progress.finished("a/b", "ok", None, 0.0)
    assert stream.getvalue().splitlines() == [
        "s: 0 of 3 runs done",
        "[1/3] a/b: failed: ended with exit code 3",
        "3 of 3 runs done, 0 s left",
    ]


def test_a_long_step_is_told_from_time_to_time_and_not_after_its_end() -> None:
    told: list[str] = []

    def fails() -> None:
        with meanwhile(told.append, lambda s: f"{s:.2f} s so far", every_s=0.02):
            sleep(0.5)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    during = list(told)
    sleep(0.1)
    assert told == during
    assert len(during) >= 3
    assert [float(line.split()[0]) for line in during] == sorted(float(line.split()[0]) for line in during)
    assert 0.02 <= float(during[0].split()[0]) <= 0.4


def test_a_short_step_is_not_told() -> None:
    told: list[str] = []
    with meanwhile(told.append, str):
        pass
    assert told == []
