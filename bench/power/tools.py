"""The compared tools: each compares two commands in a given time; its answer is parsed here.

What a tool finds becomes an :class:`Answer`: a change in percent with its 95% interval, and its decision. Where a tool
gives no interval, or no decision, the rule that made one of what it gives stands in the tool's docstring.
"""

from __future__ import annotations

import json
import os
import re
import select
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import expm1, log, sqrt
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import t as student

from .work import started

Decision = Literal["slower", "faster", "none"]
LEVEL = 0.95
CO_RUN = "pagelab --co-run"


@dataclass(frozen=True)
class Answer:
    """``change``, ``low`` and ``high`` of B against A, as fractions; ``executions``: of each command.

    ``read`` is the decision of who reads what the tool prints, where that is another one than ``decision``.
    """

    change: float
    low: float
    high: float
    decision: Decision
    executions: int
    read: Decision | None = None

    @property
    def half_width(self) -> float:
        return (self.high - self.low) / 2


@dataclass(frozen=True)
class Asked:
    """Two commands, how large the comparison is to be, and where files may go.

    ``size`` is what the tool takes: executions of each; of pyperf, processes of each; of pagelab and duet, seconds.
    """

    commands: tuple[list[str], list[str]]
    size: float
    scratch: Path
    seed: int

    def lines(self) -> tuple[str, str]:
        return shlex.join(self.commands[0]), shlex.join(self.commands[1])


@dataclass(frozen=True)
class Tool:
    """``by_time``: its size is seconds; else it is the number of something of which ``first`` is tried first.

    ``fewest``: the smallest size that it takes.
    """

    name: str
    ask: Callable[[Asked], Answer]
    by_time: bool
    first: float
    fewest: float

    def size(self, value: float) -> float:
        """As its option takes it."""
        return max(self.fewest, value if self.by_time else round(value))


def decided(low: float, high: float) -> Decision:
    """By an interval: whether it holds no difference."""
    return "slower" if low > 0 else "faster" if high < 0 else "none"


def _called(words: Sequence[str], allowed: Sequence[int] = (0,)) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode not in allowed:
        raise ToolError(f"{shlex.join(words)}: exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class ToolError(Exception):
    """A tool did not answer."""


def hyperfine(asked: Asked) -> Answer:
    """``hyperfine --runs N 'A' 'B'``: all of A, then all of B, through its shell, as it comes.

    It prints mean ± σ of each and "B ran 1.05 ± 0.07 times slower". The interval and the decision are those of Welch's
    t-test on the times that it exports, which is what its own ``scripts/welch_ttest.py`` makes of them; ``read`` is
    whether the printed ratio is further from 1 than its ±.
    """
    out = asked.scratch / "hyperfine.json"
    runs = str(int(asked.size))
    _called(["hyperfine", "--style", "none", "--runs", runs, "--export-json", str(out), *asked.lines()])
    a, b = (np.array(one["times"]) for one in json.loads(out.read_text())["results"])
    change, low, high = welch(a, b)
    ratio = b.mean() / a.mean()
    spread = ratio * sqrt((a.std(ddof=1) / a.mean()) ** 2 + (b.std(ddof=1) / b.mean()) ** 2)
    return Answer(change, low, high, decided(low, high), len(a), decided(ratio - spread - 1, ratio + spread - 1))


def welch(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """(mean B - mean A) / mean A with Welch's interval of the difference, the base taken as known."""
    va, vb = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
    error = sqrt(va + vb)
    freedom = (va + vb) ** 2 / (va**2 / (len(a) - 1) + vb**2 / (len(b) - 1)) if error > 0 else 1.0
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * error
    base = float(a.mean())
    change = float(b.mean() - a.mean())
    return change / base, (change - half) / base, (change + half) / base


def pyperf(asked: Asked) -> Answer:
    """``pyperf command -p N`` of A, then of B, then ``pyperf compare_to``.

    Processes of three values after one that is thrown away, as many loops a value as it calibrates. The decision is the
    one that ``compare_to`` prints, of Student's two-sample t-test; the interval is that of the same test.
    """
    files = [asked.scratch / f"pyperf-{side}.json" for side in "ab"]
    for path, words in zip(files, asked.commands, strict=True):
        path.unlink(missing_ok=True)
        _called([sys.executable, "-m", "pyperf", "command", "-q", "-p", str(int(asked.size)), "-o", str(path), *words])
    a, b = (_pyperf_values(path) for path in files)
    printed = _called([sys.executable, "-m", "pyperf", "compare_to", "-v", *map(str, files)])
    change, low, high = student_interval(a, b)
    significant = "Not significant" not in printed and "not significant" not in printed
    decision: Decision = "none" if not significant else "slower" if change > 0 else "faster"
    return Answer(change, low, high, decision, _pyperf_executions(files[0]))


def _pyperf_values(path: Path) -> np.ndarray:
    benchmark = json.loads(path.read_text())["benchmarks"][0]
    return np.array([value for run in benchmark["runs"] for value in run.get("values", ())])


def _pyperf_executions(path: Path) -> int:
    """Of the command in all, those of calibration and warm-up too: loops times values."""
    document = json.loads(path.read_text())
    shared = {**document.get("metadata", {}), **document["benchmarks"][0].get("metadata", {})}
    count = 0
    for run in document["benchmarks"][0]["runs"]:
        count += sum(loops for loops, _ in run.get("warmups", ()))
        count += len(run.get("values", ())) * run.get("metadata", {}).get("loops", shared.get("loops", 1))
    return count


def student_interval(a: np.ndarray, b: np.ndarray) -> tuple[float, float, float]:
    """As :func:`welch`, with the variances pooled."""
    freedom = len(a) + len(b) - 2
    pooled = ((len(a) - 1) * a.var(ddof=1) + (len(b) - 1) * b.var(ddof=1)) / freedom
    half = float(student.ppf((1 + LEVEL) / 2, freedom)) * sqrt(pooled * (1 / len(a) + 1 / len(b)))
    base = float(a.mean())
    change = float(b.mean() - a.mean())
    return change / base, (change - half) / base, (change + half) / base


def duet(asked: Asked) -> Answer:
    """Duet's scheme (Bulej et al., ICPE 2020), on processes: both commands at once, a processor each, in pairs.

    There is no package to install. Here sides change processors with every pair; each command's time is its own wall
    time, and the next pair starts when both have ended. The estimate is the geometric mean of the pairs' ratios, its
    interval the percentile bootstrap over pairs (2000 resamples); it decides.
    """
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        raise ToolError("duet's scheme needs two processors")
    end = time.monotonic() + asked.size
    ratios: list[float] = []
    turn = 0
    while time.monotonic() < end or len(ratios) < 5:
        turn += 1
        a, b = _both(asked.commands, cpus if turn % 2 else cpus[::-1])
        ratios.append(log(b / a))
    random = np.random.default_rng(asked.seed)
    values = np.array(ratios)
    means = values[random.integers(0, len(values), (2000, len(values)))].mean(axis=1)
    low, high = (float(expm1(q)) for q in np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]))
    return Answer(expm1(float(values.mean())), low, high, decided(low, high), len(ratios))


def _both(commands: tuple[list[str], list[str]], cpus: Sequence[int]) -> tuple[float, float]:
    """Wall times of both, run at once."""
    began: dict[int, float] = {}
    ended: dict[int, float] = {}
    children = []
    for words, cpu in zip(commands, cpus, strict=True):
        child, moment = started(words, cpu)
        began[child] = moment
        children.append(child)
    poll, of = select.poll(), {os.pidfd_open(child): child for child in children}
    for descriptor in of:
        poll.register(descriptor, select.POLLIN)
    while len(ended) < len(children):
        for descriptor, _ in poll.poll():
            child = of[descriptor]
            ended[child] = time.monotonic()
            poll.unregister(descriptor)
            os.close(descriptor)
            if os.waitpid(child, 0)[1]:
                raise ToolError("a command of a duet failed")
    a, b = children
    return ended[a] - began[a], ended[b] - began[b]


def perfgate(asked: Asked) -> Answer:
    """``perfgate paired --repeat N``: A, B, A, B ..., in this order; times to the millisecond.

    The mean difference, its interval and the decision are its own ("significance", a t-test); the first two are divided
    by the mean of A.
    """
    out = asked.scratch / "perfgate.json"
    a, b = asked.lines()
    runs = str(int(asked.size))
    words = ["paired", "--name", "power", "--baseline-cmd", a, "--current-cmd", b, "--repeat", runs, "--out", str(out)]
    _called([_perfgate(), *words])
    return perfgate_answer(json.loads(out.read_text())["stats"])


def perfgate_answer(stats: dict[str, Any]) -> Answer:
    found, base = stats["wall_diff_ms"], stats["baseline_wall_ms"]["mean"]
    test = found.get("significance")
    if test is None:
        raise ToolError("perfgate gave no interval")
    change, low, high = (value / base for value in (found["mean"], test["ci_lower"], test["ci_upper"]))
    decision: Decision = "none" if not test["significant"] else "slower" if change > 0 else "faster"
    return Answer(change, low, high, decision, found["count"])


def _perfgate() -> str:
    beside = Path(sys.executable).with_name("perfgate")
    found = str(beside) if beside.exists() else shutil.which("perfgate")
    if found is None:
        raise SystemExit("bench needs perfgate; run: cargo install perfgate-cli")
    return found


def pagelab(asked: Asked) -> Answer:
    """``pagelab compare --minutes M 'A' 'B'``; the estimate, the interval and the answer are its own.

    M is what leaves room for its own start and end.
    """
    return _pagelab(asked, ["--minutes", f"{asked.size / 60:.4f}"])


def co_run(asked: Asked) -> Answer:
    """``pagelab compare --co-run --executions N 'A' 'B'``: both at once on one processor, by processor time."""
    return _pagelab(asked, ["--co-run", "--executions", str(int(asked.size))])


def _pagelab(asked: Asked, size: list[str]) -> Answer:
    words = ["compare", *size, "--seed", str(asked.seed), "--json", *asked.lines()]
    found = json.loads(_called([sys.executable, "-m", "pagelab", *words], (0, 3)))["conditions"][0]["in_pairs"]
    said: dict[str, Decision] = {"lower": "faster", "higher": "slower"}
    ratio = found["ratio"]
    if ratio["value"] is None:
        raise ToolError(f"pagelab gave no interval: {ratio['reason']}")
    change, low, high = (ratio[name] / 100 for name in ("value", "low", "high"))
    return Answer(change, low, high, said.get(found["said"], "none"), found["pairs"])


TOOLS = (
    Tool("hyperfine", hyperfine, by_time=False, first=10, fewest=3),
    Tool("pyperf", pyperf, by_time=False, first=2, fewest=2),
    Tool("duet", duet, by_time=True, first=1, fewest=0.2),
    Tool("perfgate", perfgate, by_time=False, first=10, fewest=3),
    Tool("pagelab", pagelab, by_time=True, first=3.5, fewest=3),
    Tool(CO_RUN, co_run, by_time=False, first=10, fewest=6),
)
BY_NAME = {tool.name: tool for tool in TOOLS}
VERSION = re.compile(r"\d+\.\d+[\w.]*")


def versions(tools: Collection[str]) -> dict[str, str]:
    """Of those of these tools that have one."""
    asked = {
        "hyperfine": lambda: ["hyperfine", "--version"],
        "pyperf": lambda: [sys.executable, "-c", "import pyperf; print(pyperf.__version__)"],
        "perfgate": lambda: [_perfgate(), "--version"],
        "pagelab": lambda: [sys.executable, "-m", "pagelab", "--version"],
    }
    found = {name: VERSION.search(_called(words())) for name, words in asked.items() if name in tools}
    return {name: match.group() for name, match in found.items() if match}
