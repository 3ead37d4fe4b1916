"""Runs guests that check their own frames. The kernel may move a page between placing and checking."""

from __future__ import annotations

import time
from pathlib import Path

from .frames import FramesPolicy, possible
from .launching import Run, Runner

TRIES = 8


def run_placed(policy: FramesPolicy, argv: list[str], run_under: Runner, *, may_lack_colours: bool = False) -> Run:
    """The guest has found all pages as promised.

    A broken promise is forgiven, and the run repeated, only where the policy does not pin (nothing may move pinned
    pages), and the record says that pages of this very program lay elsewhere at the end than where they were found
    before they were placed: the kernel moves pages. It is repeated when the kernel is at rest again. What the engine
    misplaces is so in every try.

    ``may_lack_colours``: pools are cut from single pages, whose colours are what the machine has free. Then it is also
    repeated where the record counts pages for which there was no frame of their colour within the budget.
    """
    for _ in range(TRIES * (2 if may_lack_colours else 1)):
        before = pages_migrated()
        run = run_under(possible(policy).toml, argv, env=policy.environment(), timeout_s=60.0)
        excused = moved_pages(run) or (may_lack_colours and fallen_back(run))
        if "promised" not in run.stderr or policy.is_pinned or not excused:
            break
        print(f"repeated, since the kernel migrated {pages_migrated() - before} pages:\n{run.story()}")
        wait_until_none_migrate()
    run.succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    assert run.root.governed, run.story()
    return run


def fallen_back(run: Run) -> int:
    """Pages on a frame of another colour than asked, as the record counts them."""
    frames = run.the_record.frames
    return sum(strategy.fallback_pages for strategy in frames.strategies) if frames else 0


def pages_migrated() -> int:
    """By the whole machine, since it started."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("pgmigrate_success"))


def wait_until_none_migrate(longest_s: float = 10.0) -> None:
    """The kernel compacts for seconds on end where memory is fragmented, and its wish for huge pages is not met."""
    deadline, before = time.monotonic() + longest_s, -1
    while pages_migrated() != before and time.monotonic() < deadline:
        before = pages_migrated()
        time.sleep(0.3)


def moved_pages(run: Run) -> int:
    """Pages that were not on the engine's frames at the end."""
    frames = run.the_record.frames
    return sum(strategy.moved_pages for strategy in frames.strategies) if frames else 0
