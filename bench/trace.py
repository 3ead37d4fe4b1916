"""Cost of capturing a trace: processor time in all, start-up apart, against the program's own.

Beside it what the emulator costs alone, and with a callback for each memory access that does nothing: no plugin can be
cheaper than that.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from .sample import Result, compare, interleave
from .tools import Bench, need

CAPTURES: dict[str, Sequence[str]] = {
    "page runs": (),
    "every reference": ("--full",),
    "every reference with fetches": ("--full", "--fetches"),
}
GOALS = {"matrix": 100.0, "sort": 30.0, "git log": 30.0, "python3": 60.0}
"""For page runs, by the beginning of the program's name; the other figures have no goal."""
ROUNDS = 6
"""Few rounds, since each capture takes seconds."""
THREADS = """
import threading
words = [str(number) for number in range(20000)]
def work():
    for _ in range(4):
        counts = {}
        for word in words:
            counts[word[-2:]] = counts.get(word[-2:], 0) + len(word)
        sorted(words, key=lambda word: word[::-1])
threads = [threading.Thread(target=work) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def measure(bench: Bench) -> Iterator[Result]:
    rounds = min(bench.rounds, ROUNDS)
    target = bench.scratch / "bench.trace"
    emulator = [need("qemu-x86_64"), "-cpu", "max"]
    empty = [*emulator, "-plugin", bench.compiled("empty_plugin", "-shared", "-fPIC")]
    version = subprocess.run([emulator[0], "--version"], capture_output=True, text=True, check=True).stdout.split()[2]
    started = [need("true")]
    for name, program in _programs(bench).items():
        captures = CAPTURES if name.startswith(("sort", "matrix")) else {"page runs": ()}
        ways: dict[str, list[str]] = {
            "native": [],
            f"QEMU {version} without a plugin": emulator,
            f"QEMU {version}, an empty callback for each access": empty,
        }
        for label, options in captures.items():
            ways[label] = [sys.executable, "-m", "pagelab", "trace", "--force", "-o", str(target), *options, "--"]
        sides: dict[str, Callable[[], float]] = {}
        for label, way in ways.items():
            # A side that is a default argument is bound now, not when the loop has ended.
            sides[label] = lambda way=way, program=program: _cpu_s([*way, *program]) - _cpu_s([*way, *started])
        samples = interleave(sides, rounds)
        for label in list(sides)[1:]:
            goal = next(goal for start, goal in GOALS.items() if name.startswith(start))
            title = f"CPU time, {name}: {label}"
            yield compare(title, "s", samples["native"], samples[label], goal=goal if label == "page runs" else None)


def _programs(bench: Bench) -> dict[str, list[str]]:
    """Programs that run for 0.03 to 0.2 s by themselves; the matrix product is the worst case for runs."""
    lines = bench.scratch / "lines"
    if not lines.exists():
        order = random.Random(1)
        lines.write_text("".join(f"{order.random()}\n" for _ in range(200_000)))
    return {
        "sort of 200,000 lines": [need("sort"), "-o", "/dev/null", str(lines)],
        "git log of 5,000 commits": [need("git"), "-C", str(_repository(bench.scratch)), "log", "--stat"],
        "python3 with four threads": [os.path.realpath(sys.executable), "-c", THREADS],
        "matrix product 400 × 400": [bench.compiled("matrix", "-fno-tree-vectorize"), "400"],
    }


def _repository(scratch: Path) -> Path:
    """A repository whose commits change one file of a hundred each."""
    repository = scratch / "repository"
    if not repository.exists():
        subprocess.run([need("git"), "init", "--quiet", "--bare", str(repository)], check=True)
        lines = []
        for nth in range(5_000):
            who = f"A <a@example.org> {1_600_000_000 + nth} +0000"
            text = "".join(f"{nth} {line}\n" for line in range(20))
            lines.append(
                f"commit refs/heads/master\ncommitter {who}\ndata 6\ncommit\n"
                f"M 100644 inline file{nth % 100}\ndata {len(text)}\n{text}\n"
            )
        importing = [need("git"), "-C", str(repository), "fast-import", "--quiet"]
        subprocess.run(importing, input="".join(lines), text=True, check=True)
        subprocess.run([need("git"), "-C", str(repository), "symbolic-ref", "HEAD", "refs/heads/master"], check=True)
    return repository


def _cpu_s(command: Sequence[str]) -> float:
    """Processor seconds of a command and everything it started and waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "LC_ALL": "C"}, cwd=Path("/"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
