"""The simulators of caches and TLBs against cachegrind, in references a CPU-second."""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
from pathlib import Path

from .sample import Result
from .tools import Bench

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
GOALS = {"caches": 200.0, "TLB": 100.0}
REPEATS = 4


def measure(bench: Bench) -> list[Result]:
    """A cache-friendly matrix product: pre-decoded in memory, and under cachegrind (with its instrumentation)."""
    example = _example()
    binary, trace = bench.scratch / "matrix", bench.scratch / "matrix.trace"
    source = bench.scratch / "matrix.c"
    source.write_text(MATRIX)
    subprocess.run(["cc", "-O1", "-static", "-o", binary, source], check=True)
    subprocess.run(["pagelab", "trace", "capture", "--full", "-o", trace, "--", binary], check=True)
    results = [_result("cachegrind, matrix product", [_cachegrind(binary)], None)]
    for input_, label in ((str(trace), "matrix product"), ("zipf", "Zipf 0.9")):
        done = subprocess.run([example, input_, str(REPEATS)], check=True, capture_output=True, text=True)
        for line in map(json.loads, done.stdout.splitlines()):
            goal = GOALS.get(line["work"]) if label == "matrix product" else None
            results.append(_result(f"{line['work']}, {label}", [line["mref_per_cpu_s"]], goal))
    return results


def _result(name: str, values: list[float], goal: float | None) -> Result:
    # Goals of results are upper bounds, these are lower ones: told in the note.
    note = "" if goal is None else f"reach {goal:g}: {'met' if values[0] >= goal else 'missed'}"
    return Result(name, "Mref/CPU-s", None, values[0], "value", values[0], None, None, None, 1, {name: values}, note)


def _cachegrind(binary: Path) -> float:
    """Data references a CPU-second, user and system."""
    out = binary.with_suffix(".out")
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", f"--cachegrind-out-file={out}", str(binary)]
    subprocess.run(command, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    totals = dict(
        zip(
            *(
                next(line for line in out.read_text().splitlines() if line.startswith(key)).split()[1:]
                for key in ("events:", "summary:")
            ),
            strict=True,
        )
    )
    return (int(totals["Dr"]) + int(totals["Dw"])) / seconds / 1e6


def _example() -> str:
    subprocess.run(
        ["cargo", "build", "--release", "--locked", "-q", "-p", "pagelab-simulate", "--example", "cache_speed"],
        check=True,
    )
    done = subprocess.run(["cargo", "metadata", "--no-deps", "--format-version", "1"], check=True, capture_output=True)
    path = Path(json.loads(done.stdout)["target_directory"]) / "release/examples/cache_speed"
    found = shutil.which(path)
    assert found, path
    return found
