"""``python -m bench.coverage``: simulates, writes the CSVs, and makes the tables of docs/method again."""

from __future__ import annotations

import argparse
import csv
import re
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import bench.coverage.programs as programs
from bench.coverage import gates, intervals

ROOT = Path(__file__).parents[2]
DOCUMENT = ROOT / "docs/method/nondeterminism.md"
INTERVALS_CSV = ROOT / "src/pagelab/stats/coverage.csv"
GATES_CSV = ROOT / "docs/method/gate_errors.csv"
SHIFT = 1_000_000


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.coverage", description=__doc__)
    parser.add_argument("--experiments", type=int, default=2_000, help="simulated for each figure of an interval")
    parser.add_argument("--comparisons", type=int, default=2_000, help="simulated for each figure of a gate")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with ProcessPoolExecutor(arguments.jobs) as pool:
        parts = 2 * arguments.jobs
        covered = [
            pool.submit(_intervals, share, arguments.seed + SHIFT * part)
            for part, share in enumerate(_shares(arguments.experiments, parts))
        ]
        errors = [
            pool.submit(_gates, share, arguments.seed + SHIFT * part)
            for part, share in enumerate(_shares(arguments.comparisons, parts))
        ]
        held = _joined([one.result() for one in covered], 1)
        wrong = _joined([one.result() for one in errors], 2)
    _write(INTERVALS_CSV, ("interval", "shape", "differ", "n", "coverage", "experiments"), held)
    _write(
        GATES_CSV, ("gate", "shape", "differ", "executions_a", "executions_b", "failed", "passed", "comparisons"), wrong
    )
    text = DOCUMENT.read_text()
    for name, table in tables(held, wrong).items():
        text = re.sub(rf"(<!-- {name} -->\n).*?(<!-- end -->)", rf"\1\n{table}\n\n\2", text, flags=re.DOTALL)
    DOCUMENT.write_text(text)
    return 0


Row = tuple[Any, ...]


def _shares(total: int, parts: int) -> list[int]:
    return [total // parts + (part < total % parts) for part in range(parts)]


def _intervals(experiments: int, seed: int) -> tuple[int, list[Row]]:
    found = intervals.measure(experiments, seed)
    return experiments, [(o.interval, o.program.shape, int(o.program.differ), o.n, o.covered) for o in found]


def _gates(comparisons: int, seed: int) -> tuple[int, list[Row]]:
    found = gates.measure(comparisons, seed)
    return comparisons, [
        (o.gate, o.program.shape, int(o.program.differ), o.base, o.new, o.failed, o.passed) for o in found
    ]


def _joined(parts: Sequence[tuple[int, list[Row]]], figures: int) -> list[Row]:
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


def tables(held: Sequence[Row], wrong: Sequence[Row]) -> dict[str, str]:
    """Markdown by the name of its place in the document."""
    return {"coverage of intervals": _of_intervals(held), "errors of gates": _of_gates(wrong)}


def _of_intervals(rows: Sequence[Row]) -> str:
    """One row an interval and program; figures below 90% in bold."""
    found = {(row[0], row[1], row[2], row[3]): row[4] for row in rows}
    lines = [["interval", "program", *(f"n = {n}" for n in intervals.EXECUTIONS)]]
    for interval in dict.fromkeys(row[0] for row in rows):
        for program in programs.PROGRAMS:
            figures = [found.get((interval, program.shape, int(program.differ), n)) for n in intervals.EXECUTIONS]
            if None not in figures:
                lines.append([interval, program.shown, *(_percent(each or 0.0) for each in figures)])
    return f"{_markdown(lines, 2)}\n\n{_precision(rows[0][-1], 'experiments', 0.95)}"


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


if __name__ == "__main__":
    sys.exit(main())
