"""The schedule: balanced, deterministic, uniform; and its digits, which must never change."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from pagelab.study.schedule import Boot, boots, raw_source, schedule, shuffled, uniform

shapes = st.tuples(st.integers(1, 9), st.integers(1, 12), st.integers(0, 3), st.integers(0, 2**64 - 1))


@given(shapes)
def test_every_block_holds_every_condition_once(shape: tuple[int, int, int, int]) -> None:
    conditions, blocks, warmups, seed = shape
    slots = schedule(conditions, blocks, warmups, seed)
    assert [slot.position for slot in slots] == list(range(conditions * (blocks + warmups)))
    for block in range(-warmups, blocks):
        assert sorted(slot.condition for slot in slots if slot.block == block) == list(range(conditions))
    assert [slot.block for slot in slots] == sorted(slot.block for slot in slots), "blocks are complete before the next"
    assert all(slot.warmup == (slot.block < 0) for slot in slots)


@given(shapes, st.integers(1, 12))
def test_fewer_blocks_are_a_prefix(shape: tuple[int, int, int, int], more: int) -> None:
    conditions, blocks, warmups, seed = shape
    short, long = schedule(conditions, blocks, warmups, seed), schedule(conditions, blocks + more, warmups, seed)
    assert long[: len(short)] == short


def test_the_digits_are_fixed() -> None:
    """A recorded seed must give the same study with every later version; these values may never be updated."""
    assert raw_source(7)() == 11530976094092348043
    assert [slot.condition for slot in schedule(5, 3, 1, 7)] == [
        4,
        0,
        2,
        1,
        3,
        3,
        2,
        4,
        0,
        1,
        0,
        3,
        4,
        1,
        2,
        3,
        4,
        0,
        2,
        1,
    ]


def test_conditions_are_uniform_over_places_in_the_block() -> None:
    """20,000 blocks of 4: every condition in every place equally often, and all 24 orders equally often."""
    draw = raw_source(2026)
    orders = Counter(tuple(shuffled(4, draw)) for _ in range(20_000))
    assert len(orders) == 24
    assert chisquare(list(orders.values())).pvalue > 0.001
    for place in range(4):
        found = Counter()
        for order, count in orders.items():
            found[order[place]] += count
        assert chisquare(list(found.values())).pvalue > 0.001


def test_uniform_rejects_what_would_bias_it() -> None:
    top = 2**64 - 1
    raws = iter([top, top - 1, 5])
    assert uniform(3, lambda: next(raws)) == (top - 1) % 3  # 2^64 % 3 = 1: only the top value is rejected
    assert next(raws) == 5


@pytest.mark.parametrize("wrong", [(0, 1, 0, 1), (1, 0, 0, 1), (1, 1, -1, 1), (1, 1, 0, -1), (1, 1, 0, 2**64)])
def test_impossible_schedules_are_refused(wrong: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match=r"schedule needs|seed must lie"):
        schedule(*wrong)


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 6), st.integers(0, 2), st.integers(0, 2**64 - 1))
def test_groups_run_next_to_each_other(groups: int, together: int, blocks: int, warmups: int, seed: int) -> None:
    slots = schedule(groups * together, blocks, warmups, seed, together)
    for at in range(0, len(slots), together):
        members = [slot.condition for slot in slots[at : at + together]]
        first = min(members) // together * together
        assert sorted(members) == list(range(first, first + together))
        assert len({slot.block for slot in slots[at : at + together]}) == 1
    assert Counter(slot.condition for slot in slots) == dict.fromkeys(range(groups * together), blocks + warmups)


def test_which_of_a_group_comes_first_is_random() -> None:
    firsts = Counter(slot.condition for slot in schedule(2, 400, 0, 1, 2)[::2])
    assert 150 < firsts[0] < 250


def test_groups_that_are_not_whole_are_refused() -> None:
    with pytest.raises(ValueError, match="5 conditions are no whole groups of 2"):
        schedule(5, 1, 0, 1, 2)


each = st.sampled_from(["execution", "block"])


@given(shapes, each)
def test_each_boot_has_its_own_warm_ups(shape: tuple[int, int, int, int], boot: Boot) -> None:
    conditions, blocks, warmups, seed = shape
    slots = schedule(conditions, blocks, warmups, seed, boot=boot)
    assert [slot.position for slot in slots] == list(range(conditions * blocks * (1 + warmups)))
    analysed = [(slot.block, slot.condition) for slot in slots if not slot.warmup]
    assert analysed == [(slot.block, slot.condition) for slot in schedule(conditions, blocks, 0, seed)]
    found = boots(slots, boot)
    assert [slot for one in found for slot in one] == slots
    assert len(found) == (blocks if boot == "block" else blocks * conditions)
    for one in found:
        own = [slot for slot in one if not slot.warmup]
        assert one[len(one) - len(own) :] == own, "warm-ups come first"
        assert len({slot.block for slot in own}) == 1
        expected = Counter({slot.condition: warmups for slot in own}) if warmups else Counter()
        assert Counter(slot.condition for slot in one if slot.warmup) == expected
    assert len({(slot.block, slot.condition) for slot in slots}) == len(slots), "no two places are one"


@given(shapes, each, st.integers(1, 12))
def test_fewer_blocks_in_boots_are_a_prefix(shape: tuple[int, int, int, int], boot: Boot, more: int) -> None:
    conditions, blocks, warmups, seed = shape
    short = schedule(conditions, blocks, warmups, seed, boot=boot)
    assert schedule(conditions, blocks + more, warmups, seed, boot=boot)[: len(short)] == short


def test_no_places_have_no_boots() -> None:
    assert boots([], "block") == []
