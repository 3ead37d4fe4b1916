"""The machine's noise, by a fixed quantum of work repeated for half a second.

On a quiet machine every repetition takes the same time. What takes longer was interrupted: by the kernel, another
program, a neighbour of the virtual machine, or a changing clock. (Method: fixed work quantum; Sottile and Minnich,
"Analysis of Microbenchmarks for Performance Tuning of Clusters", CLUSTER 2004.)
"""

from __future__ import annotations

import gc
import os
import resource
import time
from dataclasses import asdict, dataclass
from itertools import repeat

from .probe import Context, Finding, Question
from .sysfs import Tree

DURATION_S = 0.5
QUANTUM_NS = 100_000
QUIET_P99_RATIO = 1.10
"""Above this ratio of 99th percentile to median the verdict is ``degraded``: rules of thumb, both."""
QUIET_LOST_FRACTION = 0.01


@dataclass(frozen=True)
class Noise:
    """Times of one quantum, in ns, and what was lost."""

    quanta: int
    minimum_ns: int
    median_ns: int
    p99_ns: int
    maximum_ns: int
    slowed_fraction: float
    """(mean − minimum) / mean: the part of the time that an undisturbed machine would not have needed."""
    preempted_fraction: float
    """1 − CPU time / wall time: the part in which something else ran on this CPU, as this kernel sees it."""
    involuntary_switches: int
    steal_fraction: float | None
    """Of all CPUs' time, the part the hypervisor gave to others; None where the kernel does not tell."""


def measure(tree: Tree, duration_s: float = DURATION_S) -> Noise:
    """Occupies one CPU for ``duration_s``, on whichever CPUs the scheduler chooses."""
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
    times.sort()
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
    )


def _calibrate() -> int:
    """Rounds of the loop that take about QUANTUM_NS when undisturbed (the least of several tries)."""
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
    """(stolen, total) of all CPUs in clock ticks since boot."""
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
class Verdict:
    """What a measurement of noise means for whoever wants to see small effects."""

    quiet: bool
    text: str
    load: float
    """Mean number of runnable tasks over the last minute."""


def judge(found: Noise) -> Verdict:
    """Quiet, or what disturbs; the thresholds are rules of thumb."""
    ratio, longest = found.p99_ns / found.median_ns, found.maximum_ns / found.median_ns
    text = (
        f"a quantum of {found.median_ns / 1000:.0f} µs: p99 {ratio:.2f}×, longest {longest:.1f}×; "
        f"{found.preempted_fraction:.1%} preempted"
    )
    if found.steal_fraction is not None:
        text += f", {found.steal_fraction:.1%} stolen"
    lost = max(found.preempted_fraction, found.steal_fraction or 0.0)
    return Verdict(ratio <= QUIET_P99_RATIO and lost <= QUIET_LOST_FRACTION, text, os.getloadavg()[0])


def _ask(context: Context) -> Finding:
    found = measure(context.tree)
    verdict = judge(found)
    value = {**asdict(found), "load": verdict.load}
    if verdict.quiet:
        return Finding("ok", f"quiet: {verdict.text}", value)
    return Finding(
        "degraded",
        verdict.text,
        value,
        f"stop other programs (load {verdict.load:.1f}); then more executions, or a quieter machine",
    )


QUESTIONS = (Question("noise", "noise", "the smallest effect that can be seen in few executions", _ask),)
