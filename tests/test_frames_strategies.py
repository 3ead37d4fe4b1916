"""What each strategy promises beyond a colour for an address: the order of bins, repeatable chance, the very frame."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest
from scipy import stats

from harness.frames import FramesPolicy, frames_policy
from harness.guests import Workshop
from harness.launching import Runner

PAGES = 1500


def possible(policy: FramesPolicy) -> FramesPolicy:
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    return policy


def colours(policy: FramesPolicy, pages: int, seed: int, workshop: Workshop, run_under: Runner) -> list[int]:
    """Colours of pages in the order in which the guest touched them (seed 0: ascending)."""
    argv = [str(workshop.build("frames/order")), str(pages), str(seed)]
    run = run_under(possible(policy).toml, argv, env=policy.environment()).succeeded()
    assert run.stderr == "", run.story()
    found = [int(line) for line in run.stdout.split()]
    assert len(found) == pages, run.story()
    return found


@pytest.mark.parametrize("seed", [0, 5])
@pytest.mark.parametrize("count", [1, 2, 20, 64, 1000])
def test_bin_hopping_follows_the_order_of_faults_exactly(
    count: int, seed: int, workshop: Workshop, run_under: Runner
) -> None:
    found = colours(frames_policy("", "bin-hopping", count), PAGES, seed, workshop, run_under)
    assert found == [(found[0] + i) % count for i in range(PAGES)]


def test_bin_hopping_starts_where_it_is_told(workshop: Workshop, run_under: Runner) -> None:
    """With only the anonymous mappings governed, what was placed before the guest's own pages is the same each time."""

    def first(more: str) -> int:
        toml = f'[[rule]]\nmemory = ["anon"]\nframes = {{ kind = "bin-hopping", colors = 64{more} }}\n'
        policy = FramesPolicy("", toml, root=True, told={"FRAMES_STRATEGY": "bin-hopping", "FRAMES_COLOURS": "64"})
        return colours(policy, 10, 0, workshop, run_under)[0]

    start = first("")
    assert first(", first = 11") == (start + 11) % 64
    assert first("") == start
    drawn = [first(f", seed = {seed}") for seed in range(4)]
    assert [first(f", seed = {seed}") for seed in range(4)] == drawn
    assert len(set(drawn)) > 1


def test_bin_hopping_with_fault_around_takes_neighbours_along(workshop: Workshop, run_under: Runner) -> None:
    found = colours(frames_policy("", "bin-hopping", 64, ", fault-around = 8"), 800, 0, workshop, run_under)
    steps = Counter((b - a) % 64 for a, b in pairwise(found))
    assert steps[1] >= 700, found


@pytest.mark.parametrize("count", [16, 20])
def test_random_is_repeatable_whatever_the_order(count: int, workshop: Workshop, run_under: Runner) -> None:
    policy = frames_policy("", "random", count, ", seed = 42", seed="42")
    found = colours(policy, PAGES, 0, workshop, run_under)
    assert colours(policy, PAGES, 0, workshop, run_under) == found
    shuffled = colours(policy, PAGES, 9, workshop, run_under)
    assert sorted(shuffled) == sorted(found)
    assert shuffled != found
    other = colours(frames_policy("", "random", count, ", seed = 43", seed="43"), PAGES, 0, workshop, run_under)
    agreeing = sum(a == b for a, b in zip(found, other, strict=True))
    assert agreeing < 2.5 * PAGES / count


def test_random_is_even_and_knows_no_neighbours(workshop: Workshop, run_under: Runner) -> None:
    count = 16
    found = colours(frames_policy("", "random", count, ", seed = 1", seed="1"), 4000, 0, workshop, run_under)
    even = [Counter(found)[colour] for colour in range(count)]
    assert stats.chisquare(even).pvalue > 1e-4
    steps = Counter((b - a) % count for a, b in pairwise(found))
    assert stats.chisquare([steps[step] for step in range(count)]).pvalue > 1e-4


def test_page_coloring_gives_neighbours_neighbouring_colours(workshop: Workshop, run_under: Runner) -> None:
    found = colours(frames_policy("", "page-coloring", 64), PAGES, 0, workshop, run_under)
    assert found == [(found[0] + i) % 64 for i in range(PAGES)]


def test_modulo_on_one_colour_holds_what_it_rejects(workshop: Workshop, run_under: Runner) -> None:
    policy = frames_policy("", "modulo", 16, ", pattern = [6]", pattern="6")
    assert set(colours(policy, 2000, 0, workshop, run_under)) == {6}
