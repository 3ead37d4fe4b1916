"""The terminal summary: what a reader sees of frame placement."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

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
    console = Console(file=StringIO(), width=80)
    console.print(summary._frames(frames))
    assert isinstance(console.file, StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert lines[1] == ["page-coloring", "64", "4,000", "99.97%", "1", "2", "MiB", "90.00%"]
    assert lines[2] == ["bin-hopping", "64", "0", "–", "0", "–", "–"]
