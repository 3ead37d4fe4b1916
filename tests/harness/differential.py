"""Runs the differential fuzzer natively and under a policy, and shortens what differs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

from .frames import BY_NAME as FRAMES
from .launching import Runner
from .policies import BY_NAME as SIZES
from .policies import Policy

TWO_POOLS = Policy(
    "two-pools",
    """
pages = "2M"
[[rule]]
memory = ["anon"]
at_least = "100K"
pages = "4K"
""",
    thp=True,
)
"""Small blocks in one pool, large ones in the other: what is moved and grows stays where it was."""

SIZE_POLICIES = [*(SIZES[name] for name in ("all-4K", "all-2M", "mosaic", "hugetlb", "prefault")), TWO_POOLS]
FRAME_POLICIES: list[Policy] = [
    FRAMES[name] for name in ("page-coloring", "bin-hopping", "random", "part", "with-tiles")
]
FURTHER_POLICIES: list[Policy] = [SIZES["kernel"], SIZES["mthp-64K"], SIZES["demand"], SIZES["willneed"]]
FURTHER_POLICIES += [FRAMES[name] for name in ("modulo", "pinned", "prefault", "several", "hashed-48", "window-16")]
POLICIES = [*SIZE_POLICIES, *FRAME_POLICIES, *FURTHER_POLICIES]


@dataclass(frozen=True)
class Trace:
    """The outcome of one run: lines of standard output, and its exit."""

    lines: list[str]
    ended: str

    @property
    def calls(self) -> int:
        counts = [int(line.split()[1]) for line in self.lines if line.startswith("calls ")]
        return counts[0] if counts else 0

    @property
    def facts(self) -> list[str]:
        """How many calls it took differs: what the kernel has as two mappings is moved by more of them."""
        return [line for line in self.lines if not line.startswith("calls ")]

    def first_difference(self, other: Trace) -> str | None:
        for number, (mine, theirs) in enumerate(zip_longest(self.facts, other.facts, fillvalue="(nothing)")):
            if mine != theirs:
                return f"line {number + 1}: natively {mine}; governed {theirs}\n{other.ended}"
        return None if self.ended == other.ended else f"natively {self.ended}; governed {other.ended}"


@dataclass(frozen=True)
class Sequence:
    """Which operations: ``only`` of each episode's, or all of them."""

    seed: int
    first: int = 0
    episodes: int = 1
    operations: int = 400
    threads: int = 1
    only: tuple[int, ...] | None = None
    say: bool = False
    without: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        numbers = [self.seed, self.first, self.episodes, self.operations, self.threads]
        words = ["say"] if self.say else []
        if self.only is not None:
            words.append("only=" + ",".join(map(str, self.only)))
        return [*map(str, numbers), *words, *(f"without={name}" for name in self.without)]


class Fuzzer:
    """One compiled fuzzer, one policy."""

    def __init__(self, program: Path, policy: Policy, run_under: Runner, *, timeout_s: float = 120.0) -> None:
        self.program, self.policy, self.run_under, self.timeout_s = program, policy, run_under, timeout_s

    def native(self, sequence: Sequence) -> Trace:
        environment = os.environ | self.policy.environment()["set"]  # type: ignore[operator]
        done = subprocess.run(
            [str(self.program), *sequence.arguments()],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
            timeout=self.timeout_s,
        )
        return Trace(done.stdout.splitlines(), f"exit {done.returncode} {done.stderr}".strip())

    def governed(self, sequence: Sequence) -> Trace:
        argv = [str(self.program), *sequence.arguments()]
        run = self.run_under(self.policy.toml, argv, env=self.policy.environment(), timeout_s=self.timeout_s)
        outcome = run.the_record.outcome
        how = f"exit {outcome.exit_code}" if outcome.signal is None else f"signal {outcome.signal}"
        how = how if outcome.status != "timed-out" else "timed out"
        return Trace(run.stdout.splitlines(), f"{how} {run.stderr}".strip())

    def compared(self, sequence: Sequence) -> tuple[str | None, int]:
        """The first line that differs, or None, and how many calls there were. Natively the fuzzer must never fail."""
        native = self.native(sequence)
        assert native.ended == "exit 0", f"natively: {sequence.arguments()}\n{native.ended}"
        return native.first_difference(self.governed(sequence)), native.calls

    def difference(self, sequence: Sequence) -> str | None:
        return self.compared(sequence)[0]

    def story(self, sequence: Sequence, difference: str) -> str:
        """A short reproducer of a difference: episode, operations, and what each of them did natively."""
        self.timeout_s = min(self.timeout_s, 10.0)  # for single episodes, of which most take milliseconds
        found = self.episode_of(sequence, difference)
        short = shortened(found, lambda shorter: self.difference(shorter) is not None) if found else sequence
        short = replace(short, say=True)
        native, governed = self.native(short), self.governed(short)
        return (
            f"{self.policy}: {difference}\nreproduce: {self.program} {' '.join(short.arguments())}\n"
            f"policy:\n{self.policy.toml}\nnatively, {native.ended}:\n" + "\n".join(native.lines[-25:]) + "\n"
            f"governed, {governed.ended}:\n"
            + "\n".join(governed.lines[-25:])
            + f"\nfirst difference: {native.first_difference(governed)}"
        )

    def episode_of(self, sequence: Sequence, difference: str) -> Sequence | None:
        """The one episode that shows it by itself; else the shortest row of episodes up to it that does."""
        for word in (difference.split("natively ")[-1], difference.partition(" episode ")[2]):
            number = word.split(".")[0].split(" ")[0]
            if not number.isdigit():
                continue
            for before in (0, 1, 4, 16, 64):
                first = max(sequence.first, int(number) - before)
                one = replace(sequence, first=first, episodes=int(number) - first + 1)
                if self.difference(one) is not None:
                    return one
        return None


def shortened(sequence: Sequence, fails: Callable[[Sequence], bool], *, tries: int = 200) -> Sequence:
    """Fewer operations that still fail: ends first, by halves, then ever smaller pieces out of the middle."""
    kept = list(sequence.only or range(sequence.operations + 1))
    low, high = 0, len(kept)
    while low < high and tries > 0:  # the shortest beginning that fails
        middle, tries = (low + high) // 2, tries - 1
        low, high = (low, middle) if fails(replace(sequence, only=tuple(kept[:middle]))) else (middle + 1, high)
    if fails(replace(sequence, only=tuple(kept[:high]))):
        kept = kept[:high]
    size = max(1, len(kept) // 2)
    while tries > 0:
        at = 0
        while at < len(kept) and tries > 0:
            shorter, tries = kept[:at] + kept[at + size :], tries - 1
            if fails(replace(sequence, only=tuple(shorter))):
                kept = shorter
            else:
                at += size
        if size == 1:
            break
        size = max(1, size // 2)
    return replace(sequence, only=tuple(kept))
