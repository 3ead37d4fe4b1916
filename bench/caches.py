"""Speed of the simulators of caches and TLBs in references per CPU-second, beside cachegrind in the same run."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from .sample import Result, absolute, compare
from .simulate_paging import threads_compared
from .tools import LEVELS, Bench, built_example, need

MATRIX = r"""
static double a[200][200], b[200][200], c[200][200];
int main(void) {
    for (int i = 0; i < 200; i++)
        for (int j = 0; j < 200; j++) a[i][j] = i + j, b[i][j] = i - j;
    for (int i = 0; i < 200; i++)
        for (int k = 0; k < 200; k++)
            for (int j = 0; j < 200; j++) c[i][j] += a[i][k] * b[k][j];
    return c[3][4] == 1;
}
"""
GOALS = {
    ("caches", "matrix product"): 300.0,
    ("caches", "gzip -9"): 120.0,
    ("caches", "Zipf 0.9"): 25.0,
    ("caches, 10 executions", "gzip -9"): 400.0,
    ("TLB", "matrix product"): 300.0,
    ("TLB", "gzip -9"): 200.0,
    ("TLB", "Zipf 0.9"): 30.0,
}
"""Goals: millions of references per processor second, at least."""
ROUNDS = 6
REPEATS = {"matrix product": 3, "gzip -9": 2, "Zipf 0.9": 1}
"""Repetitions of an input in a row, so that a run takes about a second."""
CPU_UNIT = "Mref/CPU-s"
EXECUTIONS = 8
"""Number of executions of one trace that threads share."""
AT_LEVELS = ("caches", "TLB")


def measure(bench: Bench) -> Iterator[Result]:
    """Every simulation of every input, decoded in memory, in turns with cachegrind (and its instrumentation)."""
    example, rounds = built_example("cache_speed"), min(bench.rounds, ROUNDS)
    matrix, traces = _matrix(bench), {}
    for name, command in {"matrix product": [str(matrix)], "gzip -9": _gzip(bench)}.items():
        traces[name] = bench.scratch / f"{command[0].rsplit('/', 1)[-1]}.trace"
        _run([sys.executable, "-m", "pagelab", "trace", "capture", "--full", "-o", str(traces[name]), "--", *command])
    samples: dict[tuple[str, str], list[float]] = {}
    for turn in range(rounds + 1):
        found = {("cachegrind", "matrix product"): _cachegrind(matrix)}
        for name, repeats in REPEATS.items():
            done = _run([example, str(traces.get(name, "zipf")), str(repeats)])
            for line in map(json.loads, done.splitlines()):
                found[line["work"], name] = line["mref_per_cpu_s"]
            for level, what in LEVELS.items():
                for work in AT_LEVELS:
                    done = _run(["env", level, example, str(traces.get(name, "zipf")), str(repeats), work])
                    found[f"{work} ({what})", name] = json.loads(done)["mref_per_cpu_s"]
        for key, value in found.items() if turn > 0 else ():
            samples.setdefault(key, []).append(value)
    for (work, name), values in samples.items():
        yield absolute(f"{work}, {name}", CPU_UNIT, values, goal=GOALS.get((work, name)), at_least=True)
    peer, ours = (samples[work, "matrix product"] for work in ("cachegrind", "caches"))
    yield compare("caches, matrix product: cachegrind, pagelab", CPU_UNIT, peer, ours)
    yield from _both_cores(traces, rounds)


def _both_cores(traces: dict[str, Path], rounds: int) -> Iterator[Result]:
    """Compares one and two threads from the trace file to the outcomes, the machines' histories included."""
    from pagelab import simulate

    for name, trace in traces.items():
        caches = {
            threads: lambda threads=threads, trace=trace: simulate.cache(
                trace, "zen-3", seeds=EXECUTIONS, threads=threads
            )
            for threads in (1, 2)
        }
        yield from threads_compared(f"{EXECUTIONS} executions of caches, {name}", caches, rounds)
        tlbs = {
            threads: lambda threads=threads, trace=trace: simulate.tlb(
                trace, "broadwell", seeds=EXECUTIONS, threads=threads
            )
            for threads in (1, 2)
        }
        yield from threads_compared(f"{EXECUTIONS} executions of TLBs, {name}", tlbs, rounds)


def _matrix(bench: Bench) -> Path:
    binary, source = bench.scratch / "matrix-product", bench.scratch / "matrix-product.c"
    source.write_text(MATRIX)
    _run([need("cc"), "-O1", "-static", "-o", str(binary), str(source)])
    return binary


def _gzip(bench: Bench) -> list[str]:
    """Compresses 100,000 bytes of words."""
    text, draw = bench.scratch / "text", random.Random(1)
    words = ["".join(draw.choices("abcdefghijklmnop", k=draw.randint(2, 9))) for _ in range(500)]
    text.write_text(" ".join(draw.choices(words, k=16_000))[:100_000])
    return [need("gzip"), "-9", "-k", "-f", str(text)]


def _run(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _cachegrind(binary: Path) -> float:
    """Data references per CPU-second, user and system time."""
    out = binary.with_suffix(".out")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    _run([need("valgrind"), "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", str(binary)])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    lines = out.read_text().splitlines()
    columns = [next(line for line in lines if line.startswith(key)).split()[1:] for key in ("events:", "summary:")]
    totals = dict(zip(*columns, strict=True))
    return (int(totals["Dr"]) + int(totals["Dw"])) / seconds / 1e6
