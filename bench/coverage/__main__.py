"""``python -m bench.coverage``: simulates, writes the CSVs, and makes the tables of docs/method again.

What was simulated is kept in ``--work``, under a digest of the sources: the same command goes on where it was ended.
``--all`` makes every other table of coverage again as well, each by its own module (docs/method.md lists them).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from hashlib import blake2b
from pathlib import Path
from typing import Any

import bench.coverage.programs as programs
from bench.coverage import gates, intervals
from bench.coverage.tables import put

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/method/nondeterminism.md"
INTERVALS_CSV = ROOT / "src/pagelab/stats/coverage.csv"
GATES_CSV = ROOT / "docs/method/gate_errors.csv"
SHIFT = 1_000_000
PARTS = 8
"""Of every simulation, each with a seed of its own: figures do not depend on the number of processes."""
SOURCES = (
    "src/pagelab/stats",
    "src/pagelab/diagnose",
    "src/pagelab/analysis/gates.py",
    "crates/stats/src",
    "bench/coverage/intervals.py",
    "bench/coverage/gates.py",
    "bench/coverage/programs.py",
)
"""What figures depend on."""
OTHERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pairs", "sets", "diagnose", "blocks", "sampling", "advise", "models", "designs"), ()),
    "precision": (
        "--work",
        "target/precision",
        "--out",
        "docs/method/precision_coverage.csv",
        "--document",
        "docs/method.md",
    ),
}
"""Modules with tables of their own, and their options."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description=__doc__)
    parser.add_argument("--experiments", type=int, default=1_000, help="simulated for each figure of an interval")
    parser.add_argument("--comparisons", type=int, default=1_000, help="simulated for each figure of a gate")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--work", type=Path, default=ROOT / "target/coverage", help="where parts are kept")
    parser.add_argument("--only", choices=("intervals", "gates"), help="one of the two tables")
    parser.add_argument("--all", action="store_true", help="also the tables of the other modules: hours")
    arguments = parser.parse_args()
    work = arguments.work / _digest()
    work.mkdir(parents=True, exist_ok=True)
    with ProcessPoolExecutor(arguments.jobs) as pool:
        pending = {
            what: [
                pool.submit(_kept, work / f"{what}-{total}-{arguments.seed}-{part}.json", simulate, share, seed)
                for part, (share, seed) in enumerate(_shares(total, arguments.seed))
            ]
            for what, simulate, total in (
                ("intervals", _intervals, arguments.experiments),
                ("gates", _gates, arguments.comparisons),
            )
            if arguments.only in (None, what)
        }
        for what, parts in pending.items():
            name, path, columns, figures, table = TABLES[what]
            rows = _joined([one.result() for one in parts], figures)
            _write(path, columns, rows)
            put(name, table(rows), DOCUMENT)
    if arguments.all:
        for name, options in OTHERS.items():
            print(f"bench.coverage.{name}", flush=True)
            subprocess.run([sys.executable, "-m", f"bench.coverage.{name}", *options], check=True, cwd=ROOT)
    return 0


Row = tuple[Any, ...]


Part = tuple[int, list[Row]]
"""How many were simulated, and the rows of figures."""


def _digest() -> str:
    """Of the sources."""
    found = blake2b(digest_size=8)
    for source in SOURCES:
        path = ROOT / source
        for file in sorted(path.rglob("*.rs") if "crates" in source else path.rglob("*.py")) or [path]:
            if file.name != "coverage.py":  # says what was simulated
                found.update(file.read_bytes())
    return found.hexdigest()


def _shares(total: int, seed: int) -> list[tuple[int, int]]:
    """Experiments and seed of each part; fewer parts where there are fewer experiments."""
    parts = min(PARTS, total)
    return [(total // parts + (part < total % parts), seed + SHIFT * part) for part in range(parts)]


def _kept(path: Path, simulate: Callable[[int, int], Part], share: int, seed: int) -> Part:
    """What is in the file; simulated and written where there is none."""
    if not path.exists():
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps(simulate(share, seed)))
        fresh.rename(path)
    count, rows = json.loads(path.read_text())
    return count, [tuple(row) for row in rows]


def _intervals(experiments: int, seed: int) -> Part:
    found = intervals.measure(experiments, seed)
    return experiments, [(o.interval, o.program.shape, int(o.program.differ), o.n, o.covered) for o in found]


def _gates(comparisons: int, seed: int) -> Part:
    found = gates.measure(comparisons, seed)
    return comparisons, [
        (o.gate, o.program.shape, int(o.program.differ), o.base, o.new, o.failed, o.passed) for o in found
    ]


def _joined(parts: Sequence[Part], figures: int) -> list[Row]:
    """Weighted means of the last ``figures`` columns over parts that were simulated apart, and how many they are of."""
    total = sum(count for count, _ in parts)
    joined = []
    for rows in zip(*(rows for _, rows in parts), strict=True):
        means = [
            sum(count * row[column - figures] for (count, _), row in zip(parts, rows, strict=True)) / total
            for column in range(figures)
        ]
        joined.append((*rows[0][:-figures], *(round(mean, 5) for mean in means), total))
    return joined


def _write(path: Path, header: Sequence[str], rows: Iterable[Row]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def _of_intervals(rows: Sequence[Row]) -> str:
    """One row an interval and program; figures below 90% in bold."""
    found = {(row[0], row[1], row[2], row[3]): row[4] for row in rows}
    lines = [["interval", "program", *(f"n = {n}" for n in intervals.EXECUTIONS)]]
    for interval in dict.fromkeys(row[0] for row in rows):
        for program in programs.PROGRAMS:
            figures = [found.get((interval, program.shape, int(program.differ), n)) for n in intervals.EXECUTIONS]
            if None not in figures:
                lines.append([interval, program.shown, *(_percent(each or 0.0) for each in figures)])
    count = rows[0][-1]
    slow = -(-count // intervals.SLOW)
    return (
        f"{_markdown(lines, 2)}\n\n{_precision(count, 'experiments', 0.95)} Of correlations, sets and diagnoses "
        f"{slow:,}; {100 * (0.95 * 0.05 / slow) ** 0.5:.1f}."
    )


def _precision(count: int, what: str, share: float) -> str:
    error = 100 * (share * (1 - share) / count) ** 0.5
    return f"Each figure: {count:,} {what}; standard error {error:.1f} at {100 * share:g}%."


def _percent(share: float) -> str:
    text = f"{100 * share:.1f}"
    return f"**{text}**" if share < 0.9 else text


def _of_gates(rows: Sequence[Row]) -> str:
    """Mean over the programs, and the worst of them, at each pair of sizes."""
    lines = [["gate, at its limit", "falsely", *(f"{a} against {b}" for a, b in gates.SIZES)]]
    for gate in dict.fromkeys(row[0] for row in rows):
        for column, word in ((5, "fails"), (6, "passes")):
            worst = []
            for sizes in gates.SIZES:
                mine = [row for row in rows if row[0] == gate and (row[3], row[4]) == sizes]
                shares = [100 * row[column] for row in mine]
                worst.append(f"{sum(shares) / len(shares):.1f} ({max(shares):.1f})")
            lines.append([gate, word, *worst])
    return f"{_markdown(lines, 2)}\n\n{_precision(rows[0][-1], 'comparisons', 0.025)}"


def _markdown(lines: list[list[str]], texts: int) -> str:
    rule = ["---"] * texts + ["--:"] * (len(lines[0]) - texts)
    return "\n".join(f"| {' | '.join(line)} |" for line in (lines[0], rule, *lines[1:]))


TABLES: dict[str, tuple[str, Path, tuple[str, ...], int, Callable[[Sequence[Row]], str]]] = {
    "intervals": (
        "coverage of intervals",
        INTERVALS_CSV,
        ("interval", "shape", "differ", "n", "coverage", "experiments"),
        1,
        _of_intervals,
    ),
    "gates": (
        "errors of gates",
        GATES_CSV,
        ("gate", "shape", "differ", "executions_a", "executions_b", "failed", "passed", "comparisons"),
        2,
        _of_gates,
    ),
}
"""Name in the document, file, its columns, how many of them are figures, and the table in Markdown."""


if __name__ == "__main__":
    sys.exit(main())
