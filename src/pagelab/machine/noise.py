"""Measures disturbances on this machine: scheduling, steal, shared memory, the clock.

A fixed quantum of work is repeated for half a second. On a quiet machine every repetition takes the same time. A longer
one was disturbed by the kernel, another program, a neighbour of the virtual machine, or a changing clock.
(Method: fixed work quantum; Sottile and Minnich, "Analysis of Microbenchmarks for Performance Tuning of Clusters",
CLUSTER 2004.) Then memory that exceeds the caches is copied for a third of a second; only this shows neighbours that
use the same memory.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from dataclasses import asdict, dataclass
from itertools import repeat
from math import ceil, sqrt

from .probe import Context, Finding, Question
from .settings import has_governor
from .sysfs import Tree

DURATION_S = 0.5
QUANTUM_NS = 100_000
MEMORY_S = 0.35
COPIED_BYTES = 64 << 20
"""Larger than most last-level caches."""
QUIET_LOST_FRACTION = 0.01
QUIET_MEMORY = 0.05
QUIET_CLOCK = 0.02
"""A disturbance is reported from these values on; all are rules of thumb."""
MUCH = 5
"""From this multiple of the limit on, a disturbance is a warning; below, a remark."""


@dataclass(frozen=True)
class Noise:
    """Measured noise: times of one quantum in ns, and shares of lost time."""

    quanta: int
    minimum_ns: int
    median_ns: int
    p99_ns: int
    maximum_ns: int
    slowed_fraction: float
    """(mean − minimum) / mean: the share of the time that an undisturbed machine would not have needed."""
    preempted_fraction: float
    """1 − CPU time / wall time: the share in which something else ran on this CPU, as this kernel sees it."""
    involuntary_switches: int
    steal_fraction: float | None
    """Share of all CPUs' time that the hypervisor gave to others; None if the kernel does not report it."""
    clock_fraction: float = 0.0
    """Difference between the fastest tenths of quanta of the first and second half, relative to their mean."""
    memory_bytes_per_s: float | None = None
    """Median rate of one thread's copies of ``COPIED_BYTES`` (bytes read plus written); None if memory is too small."""
    memory_spread: float | None = None
    """Half of the range from the 10th to the 90th percentile of these copies' times, relative to the median."""


def measure(tree: Tree, duration_s: float = DURATION_S, memory_s: float = MEMORY_S) -> Noise:
    """Measures the noise; occupies one CPU, of the scheduler's choice, for both durations."""
    rounds = _calibrate()
    steal_before = _steal(tree)
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw
    collecting = gc.isenabled()
    gc.disable()
    try:
        wall, cpu = time.perf_counter_ns(), time.thread_time_ns()
        times = _quanta(rounds, int(duration_s * 1e9))
        wall, cpu = time.perf_counter_ns() - wall, time.thread_time_ns() - cpu
    finally:
        if collecting:
            gc.enable()
    switches = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switches
    mean = sum(times) / len(times)
    clock = _clock(times)
    times.sort()
    rate, spread = _memory(_copies(memory_s))
    return Noise(
        quanta=len(times),
        minimum_ns=times[0],
        median_ns=times[len(times) // 2],
        p99_ns=times[(len(times) * 99 - 1) // 100],
        maximum_ns=times[-1],
        slowed_fraction=(mean - times[0]) / mean,
        preempted_fraction=max(0.0, 1 - cpu / wall),
        involuntary_switches=switches,
        steal_fraction=_steal_fraction(steal_before, _steal(tree)),
        clock_fraction=clock,
        memory_bytes_per_s=rate,
        memory_spread=spread,
    )


def _clock(times: list[int]) -> float:
    """Relative change of the clock between the fastest, undisturbed quanta of each half."""
    half = len(times) // 2
    fastest = [sorted(part)[: max(1, half // 10)] for part in (times[:half], times[half:]) if part]
    means = [sum(part) / len(part) for part in fastest]
    return abs(means[0] - means[-1]) / (sum(means) / len(means))


def _copies(duration_s: float) -> list[int]:
    """Processor times of copies in ns, after a first copy that touches the pages; empty if memory is too small.

    Wall times would include scheduling.
    """
    try:
        source, target = bytearray(b"\1") * COPIED_BYTES, bytearray(COPIED_BYTES)
    except MemoryError:
        return []
    from_, into = memoryview(source), memoryview(target)
    into[:] = from_
    clock = time.thread_time_ns
    times: list[int] = []
    end = time.perf_counter_ns() + int(duration_s * 1e9)
    while time.perf_counter_ns() < end or len(times) < 5:
        before = clock()
        into[:] = from_
        times.append(clock() - before)
    return times


def _memory(times: list[int]) -> tuple[float | None, float | None]:
    """Bytes per second and relative spread of these copies."""
    if not times:
        return None, None
    ordered = sorted(times)
    low, middle, high = (ordered[round(share * (len(ordered) - 1))] for share in (0.1, 0.5, 0.9))
    return 2 * COPIED_BYTES / (middle / 1e9), (high - low) / 2 / middle


def _calibrate() -> int:
    """Rounds of the loop that take about QUANTUM_NS undisturbed, from the fastest of several tries."""
    rounds = 1000
    while True:
        best = min(_quanta(rounds, 5 * QUANTUM_NS))
        if best >= QUANTUM_NS // 4:
            return max(1, rounds * QUANTUM_NS // best)
        rounds *= 2


def _quanta(rounds: int, duration_ns: int) -> list[int]:
    clock = time.perf_counter_ns
    times: list[int] = []
    start = now = clock()
    while now - start < duration_ns or not times:
        before = now
        for _ in repeat(None, rounds):
            pass
        now = clock()
        times.append(now - before)
    return times


def _steal(tree: Tree) -> tuple[int, int] | None:
    """(stolen, total) time of all CPUs in clock ticks since boot."""
    words = (tree.get("/proc/stat") or "").split(" ")
    if words[:1] != ["cpu"] or len(words) < 9:
        return None
    ticks = [int(word) for word in words[1:9]]
    return ticks[7], sum(ticks)


def _steal_fraction(before: tuple[int, int] | None, after: tuple[int, int] | None) -> float | None:
    if before is None or after is None or after[1] <= before[1]:
        return None
    return (after[0] - before[0]) / (after[1] - before[1])


@dataclass(frozen=True)
class Disturbance:
    """One kind of disturbance and its size."""

    what: str
    """``scheduling``, ``steal``, ``memory`` or ``clock``."""
    size: float
    text: str
    advice: str
    much: bool


@dataclass(frozen=True)
class Verdict:
    """What measured noise means for small effects."""

    text: str
    """The figures in words; they are comparable between machines."""
    disturbances: tuple[Disturbance, ...]
    """The disturbances, the worst first (relative to its limit)."""
    load: float
    """Mean number of runnable tasks over the last minute."""

    @property
    def quiet(self) -> bool:
        return not self.disturbances


IN_A_STUDY = 'compare processor time: metric = "cpu_s" in study.toml'
BY_OPTION = "compare processor time: --metric cpu_s"
OF_DOCTOR = "compare processor time: try, compare, advise and diagnose have --metric cpu_s"
"""How a user has processor time compared: in a study, by an option of the command, or in a later command."""


def judge(found: Noise, *, wall: bool = True, tree: Tree | None = None, how: str = IN_A_STUDY) -> Verdict:
    """Judges measured noise; the limits are rules of thumb. ``wall`` false: only processor time is measured in the
    study, and other programs on the CPU take nothing from it. ``tree``: where a frequency driver is looked for.
    ``how``: the words on processor time.
    """
    load = os.getloadavg()[0]
    given = (
        (
            "scheduling",
            found.preempted_fraction if wall else 0.0,
            QUIET_LOST_FRACTION,
            f"other programs took {found.preempted_fraction:.0%} of its CPU (load {load:.1f})",
            f"stop them, or {how}",
        ),
        (
            "steal",
            found.steal_fraction or 0.0,
            QUIET_LOST_FRACTION,
            f"the hypervisor took {found.steal_fraction or 0.0:.0%} of all CPUs",
            f"times may scatter as much: this alone may need {_executions_for_3_percent(found.steal_fraction or 0.0):,}"
            " executions of each setting for ±3%",
        ),
        (
            "memory",
            found.memory_spread or 0.0,
            QUIET_MEMORY,
            f"memory speed varies by ±{found.memory_spread or 0.0:.0%}",
            "in programs larger than the caches, this alone may need "
            f"{_executions_for_3_percent(found.memory_spread or 0.0):,} executions of each setting for ±3%",
        ),
        (
            "clock",
            found.clock_fraction,
            QUIET_CLOCK,
            f"the clock changed by {found.clock_fraction:.1%}",
            "fix the governor: sudo pagelab doctor --fix governor=performance"
            if has_governor(tree or Tree())
            else "the host sets the clock: more executions average it out",
        ),
    )
    several = [
        (size / quiet, Disturbance(what, size, text, advice, size > MUCH * quiet))
        for what, size, quiet, text, advice in given
        if size > quiet
    ]
    several.sort(key=lambda one: -one[0])
    return Verdict(_figures(found), tuple(one for _, one in several), load)


_FEWEST = 6
"""Least number of pairs for any comparison (docs/method/pairs.md)."""


def _executions_for_3_percent(spread: float) -> int:
    """Executions of each of two conditions that differ by this disturbance alone: long executions and pairing need
    fewer, programs that scatter by themselves more.
    """
    return max(_FEWEST, ceil((1.96 * sqrt(2) * spread / 0.03) ** 2))


def _figures(found: Noise) -> str:
    """The figures in words, comparable between machines."""
    ratio, longest = found.p99_ns / found.median_ns, found.maximum_ns / found.median_ns
    parts = [f"scheduling {found.preempted_fraction:.1%}"]
    if found.steal_fraction is not None:
        parts.append(f"steal {found.steal_fraction:.1%}")
    if found.memory_bytes_per_s is not None and found.memory_spread is not None:
        parts.append(f"memory {found.memory_bytes_per_s / 2**30:.1f} GiB/s ±{found.memory_spread:.1%}")
    parts.append(f"clock {found.clock_fraction:.1%}")
    return ", ".join(parts) + f"; {found.median_ns / 1000:.0f} µs of work: p99 {ratio:.2f}×, longest {longest:.1f}×"


def _ask(context: Context) -> Finding:
    found = measure(context.tree)
    verdict = judge(found, tree=context.tree, how=OF_DOCTOR)
    value = {**asdict(found), "load": verdict.load, "disturbed_by": [one.what for one in verdict.disturbances]}
    if verdict.quiet:
        return Finding("ok", f"quiet: {verdict.text}", value)
    worst = verdict.disturbances[0]
    return Finding("degraded", verdict.text, value, f"{worst.text}: {worst.advice}")


QUESTIONS = (Question("noise", "noise", "the smallest effect that can be seen in few executions", _ask),)
