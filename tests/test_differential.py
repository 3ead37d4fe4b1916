"""Random memory calls have the same results under every policy as natively.

The guest makes its calls from a seed, so that a run can be repeated; its trace has no addresses, so that two runs can
be compared. A difference is shortened to the few operations that it takes, which the failure prints.
"""

from __future__ import annotations

import itertools
import os
import time

import pytest

from harness.differential import FRAME_POLICIES, POLICIES, SIZE_POLICIES, Fuzzer, Sequence
from harness.guests import Workshop
from harness.huge_pages import HugePages
from harness.launching import Runner
from harness.policies import Policy

CAMPAIGN_CALLS = int(os.environ.get("PAGELAB_FUZZ_CALLS", "10_000_000"))
CAMPAIGN_SEED = int(os.environ.get("PAGELAB_FUZZ_SEED", "1000"))


@pytest.fixture
def fuzzer(policy: Policy, workshop: Workshop, run_under: Runner, huge_pages: HugePages) -> Fuzzer:
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    if policy.huge_pages:
        huge_pages.need(policy.huge_pages)
    return Fuzzer(workshop.build("differential/fuzz"), policy, run_under)


def is_as_natively(fuzzer: Fuzzer, sequence: Sequence) -> int:
    """How many calls agreed; fails with a reproducer where one does not."""
    difference, calls = fuzzer.compared(sequence)
    if difference:
        pytest.fail(fuzzer.story(sequence, difference), pytrace=False)
    return calls


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("policy", [*SIZE_POLICIES, *FRAME_POLICIES], ids=str)
def test_calls_have_the_results_they_have_natively(fuzzer: Fuzzer, seed: int) -> None:
    is_as_natively(fuzzer, Sequence(seed, episodes=60))


# Found what was wrong once: seed and episode, with threads where it took them.
REGRESSIONS = [
    Sequence(1, first=5, episodes=2),  # a mapping across the border of heap and pools that moves leaves nothing behind
    Sequence(2, first=8),  # a hint into a hole where a pool could be, but is none
    Sequence(2, first=12),  # what the program mapped over its heap is no reserved page
    Sequence(4, first=52),  # MADV_DONTNEED_LOCKED of a part of a reserved page
    Sequence(6, first=25),  # MREMAP_DONTUNMAP of a mapping across a border
    Sequence(77013, first=11),  # MADV_WIPEONFORK stays with normal memory that grows to where reserved pages are wanted
    Sequence(77021, first=139),  # what a block with MADV_WIPEONFORK grows by in a hole before spare memory has it, too
    Sequence(
        90040, first=552
    ),  # what a moved block with MADV_WIPEONFORK grows by where spare memory was another mapping
    Sequence(3, first=12, threads=3),
]


@pytest.mark.parametrize("sequence", REGRESSIONS, ids=lambda sequence: f"{sequence.seed}-{sequence.first}")
@pytest.mark.parametrize("policy", SIZE_POLICIES, ids=str)
def test_what_once_differed_has_the_results_it_has_natively(fuzzer: Fuzzer, sequence: Sequence) -> None:
    is_as_natively(fuzzer, sequence)


@pytest.mark.parametrize("policy", SIZE_POLICIES, ids=str)
def test_calls_of_several_threads_have_the_results_they_have_natively(fuzzer: Fuzzer) -> None:
    is_as_natively(fuzzer, Sequence(3, episodes=20, threads=3))


@pytest.mark.parametrize("policy", FRAME_POLICIES[:2], ids=str)
def test_calls_of_several_threads_with_placed_frames(fuzzer: Fuzzer) -> None:
    is_as_natively(fuzzer, Sequence(4, episodes=20, threads=3))


def test_a_trace_is_the_same_every_time(workshop: Workshop, run_under: Runner) -> None:
    """Else nothing that the other tests find would mean anything."""
    fuzzer = Fuzzer(workshop.build("differential/fuzz"), POLICIES[0], run_under)
    for threads in (1, 3):
        sequence = Sequence(5, episodes=30, threads=threads)
        first, second = fuzzer.native(sequence), fuzzer.native(sequence)
        assert first.first_difference(second) is None
        assert first.calls > 5000


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_campaign(fuzzer: Fuzzer) -> None:
    """One thread, and in every fourth run three; ``PAGELAB_FUZZ_CALLS`` and ``PAGELAB_FUZZ_SEED`` choose others."""
    done, begin = 0, time.monotonic()
    for run in itertools.count():
        threads = 3 if run % 4 == 3 and not fuzzer.policy.huge_pages else 1
        done += is_as_natively(fuzzer, Sequence(CAMPAIGN_SEED + run, episodes=600 // threads, threads=threads))
        if done >= CAMPAIGN_CALLS:
            break
    print(f"{fuzzer.policy}: {done} calls agree, {done / (time.monotonic() - begin):.0f} a second with both runs")
