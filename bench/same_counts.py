"""Counts of this version's simulators beside another's, on random traces: every one must be the same.

``python -m bench.same_counts OTHER_PYTHON [--traces N]``: OTHER_PYTHON is an interpreter that has the other version
installed. Each trace is of another kind, length, number of pages, of threads and address spaces, and cut into batches
elsewhere; each goes through stacks (several lists of colour counts, one thread and two), other policies, caches and
TLBs. This version repeats it with the instructions of older processors. Exit status 1: a count differs.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pagelab import trace

from .tools import LEVELS

COUNT = """
import json, sys
from pagelab import simulate
for line in sys.stdin:
    job = json.loads(line)
    work = getattr(simulate, job["work"])
    found = work(*job["given"], **job["named"])
    frames = {"": found} if hasattr(found, "columns") else {
        name: getattr(found, name) for name in ("levels", "executions", "windows") if hasattr(found, name)
    }
    print(json.dumps({name: frame.to_dict(as_series=False) for name, frame in frames.items()}), flush=True)
"""
PAGES_MOST = 200_000
REFERENCES_MOST = 300_000
COLOURS = ([1], [1, 2, 4, 8, 16, 32, 64], [3, 6, 12, 5], [2, 64], [7])
CACHES = ("zen-3", "skylake", "broadwell")
TLBS = ("zen-3", "zen-4", "broadwell", "skylake", "sapphire-rapids")


def references(rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Independent, skewed, swept or mixed references to some number of pages; a few threads in a few spaces."""
    count, pages = int(rng.integers(1, REFERENCES_MOST)), int(rng.integers(1, PAGES_MOST) ** rng.choice([0.5, 1.0]))
    kinds = {
        "uniform": lambda: rng.integers(pages, size=count),
        "skewed": lambda: np.minimum(rng.pareto(rng.uniform(0.3, 2), size=count) * 3, 2.0**40).astype(np.int64) % pages,
        "swept": lambda: np.arange(count) % pages,
        "alternating": lambda: rng.integers(pages, size=(count // 16 + 1, 2)).repeat(8, axis=0).reshape(-1)[:count],
        "run": lambda: np.repeat(rng.integers(pages, size=count // 8 + 1), 8)[:count],
    }
    parts = [kinds[str(rng.choice(list(kinds)))]() for _ in range(int(rng.integers(1, 4)))]
    page = parts[0] if len(parts) == 1 else np.choose(rng.integers(len(parts), size=count), parts)
    base = int(rng.choice([0, 0x5555_5555, 0x7F00_0000_0]))
    address = (page.astype(np.uint64) + np.uint64(base)) * np.uint64(4096) + rng.integers(
        4096, size=count, dtype=np.uint64
    )
    threads = rng.integers(int(rng.integers(1, 4)), size=count // 64 + 1).repeat(64)[:count]
    return {
        "address": address,
        "kind": rng.integers(2, size=count).astype(np.uint8),
        "size": rng.choice(np.array([1, 4, 8, 16, 64], np.uint32), size=count),
        "thread": threads.astype(np.uint32),
        "asid": (threads % int(rng.integers(1, 3))).astype(np.uint16),
    }


def jobs(rng: np.random.Generator, path: Path) -> list[dict[str, Any]]:
    """What is asked of one trace."""
    colours = COLOURS[rng.integers(len(COLOURS))]
    unit = math.lcm(*colours)
    frames = sorted({unit * int(size) for size in rng.integers(1, PAGES_MOST // unit, size=6)})
    seeds = int(rng.integers(1, 4))
    return [
        *(
            {"work": "paging", "given": [str(path), colours], "named": {"memory": frames, "threads": threads}}
            for threads in (1, 2)
        ),
        {
            "work": "replacement",
            "given": [str(path), ["fifo", "clock", "random", "opt"], frames[:2]],
            "named": {"colours": colours[:2]},
        },
        {
            "work": "cache",
            "given": [str(path), str(rng.choice(CACHES))],
            "named": {"seeds": seeds, "threads": int(rng.integers(1, 3))},
        },
        {
            "work": "tlb",
            "given": [str(path), str(rng.choice(TLBS))],
            "named": {"seeds": 1, "threads": int(rng.integers(1, 3)), "caches": bool(rng.integers(2))},
        },
    ]


class Version:
    """An interpreter that counts."""

    def __init__(self, python: str, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [python, "-c", COUNT],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, job: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        print(json.dumps(job), file=self._process.stdin, flush=True)

    def answer(self) -> dict[str, dict[str, list[Any]]]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args}: ended with status {self._process.wait()}")
        return dict(json.loads(line))


def differences(one: dict[str, dict[str, list[Any]]], other: dict[str, dict[str, list[Any]]]) -> list[str]:
    """Names of the columns that both have and that are not equal, and of frames that only one has."""
    found = sorted(one.keys() ^ other.keys())
    for name in one.keys() & other.keys():
        common = one[name].keys() & other[name].keys()
        found += [f"{name}.{column}" for column in sorted(common) if one[name][column] != other[name][column]]
        found += [f"{name}: no column in common"] if not common and (one[name] or other[name]) else []
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.same_counts", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("other")
    parser.add_argument("--traces", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    own = {what: dict([setting.split("=", 1)]) for setting, what in LEVELS.items()}
    versions = {"all instructions": Version(sys.executable, {})}
    versions |= {what: Version(sys.executable, environment) for what, environment in own.items()}
    versions["the other version"] = Version(arguments.other, {})
    compared = differ = 0
    with tempfile.TemporaryDirectory() as directory:
        for number in range(arguments.traces):
            rng = np.random.default_rng([arguments.seed, number])
            columns, path = references(rng), Path(directory) / f"{number}.trace"
            cuts = np.sort(rng.integers(len(columns["address"]), size=int(rng.integers(0, 6))))
            pieces = [np.split(column, cuts) for column in columns.values()]
            batches = [dict(zip(columns, piece, strict=True)) for piece in zip(*pieces, strict=True)]
            trace.write(path, [batch for batch in batches if len(batch["address"])])
            for job in jobs(rng, path):
                for version in versions.values():
                    version.ask(job)
                answers = {name: version.answer() for name, version in versions.items()}
                reference = answers.pop("the other version")
                compared += len(answers)
                for name, answer in answers.items():
                    if wrong := differences(answer, reference):
                        differ += 1
                        print(f"trace {number}, {name}, {json.dumps(job)}: {', '.join(wrong)}", flush=True)
            path.unlink()
    print(f"{arguments.traces} traces, {compared} comparisons, {differ} with other counts")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
