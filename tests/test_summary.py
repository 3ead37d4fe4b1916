"""The terminal summary: what a reader sees of frame placement."""

from __future__ import annotations

import pytest

from pagelab.cli import lines as plain
from pagelab.cli import summary
from pagelab.record import Frames, FramesStrategy


@pytest.mark.parametrize(
    ("part", "whole", "text"),
    [(0, 0, "–"), (0, 5, "0.00%"), (1, 3, "33.33%"), (10, 10, "100%"), (999_999, 1_000_000, "99.99%")],
)
def test_all_but_one_is_not_all(part: int, whole: int, text: str) -> None:
    assert summary.share(part, whole) == text


def strategy(number: int, kind: str, **changes: object) -> FramesStrategy:
    counts = {name: 0 for name, field in FramesStrategy.model_fields.items() if field.annotation is int}
    return FramesStrategy.model_validate({**counts, "number": number, "kind": kind, "colours": 64, **changes})


def test_strategies_have_a_line_each() -> None:
    one = strategy(
        0,
        "page-coloring",
        requested_pages=4000,
        placed_pages=3999,
        zero_pages=1,
        kept_pages=90,
        moved_pages=10,
        out_of_reach_bytes={"file": 1 << 20, "shared": 1 << 20},
    )
    frames = Frames(
        rights="own",
        placed_fraction=0.99,
        kept_fraction=0.9,
        engines_started=1,
        engines_failed=0,
        engine=None,
        strategies=[one, strategy(1, "bin-hopping")],
    )
    lines = [line.split() for line in summary._frames(frames.model_dump(mode="json")).splitlines()]
    assert lines[1] == ["page-coloring", "64", "4,000", "99.97%", "1", "2", "MiB", "90.00%"]
    assert lines[2] == ["bin-hopping", "64", "0", "–", "0", "–", "–"]


def test_cells_are_as_wide_as_a_terminal_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    table = plain.table([["name", "n"], ["日本", "10"], [("é\x1b", "green"), "7"]], "<>", title="a [title]")
    assert table.splitlines() == [
        "a [title]",
        "\x1b[2mname\x1b[0m    \x1b[2mn\x1b[0m",
        "日本   10",
        "\x1b[32mé\\x1b\x1b[0m   7",
    ]


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, set()),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, set()),
        ({"FORCE_COLOR": "1", "TERM": "xterm", "NO_COLOR": "1"}, {"bold", "dim"}),
    ],
)
def test_styles_are_those_that_can_be_shown(
    variables: dict[str, str], expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert plain.styles() == expected


def test_a_warning_is_broken_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    assert plain.paragraph(" ! kind: some words of a warning", "yellow").splitlines() == [
        " ! kind: some words",
        "of a warning",
    ]
