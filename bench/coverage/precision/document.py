"""The tables of docs/method.md, made from the simulation's rows."""

from __future__ import annotations

import re

from bench.coverage.precision.cells import CELLS, Cell
from bench.coverage.precision.tabulate import RULES, Row


def tables(rows: list[Row]) -> dict[str, str]:
    """Markdown tables by the name of their place in the document."""
    return {
        "cells": cell_table(CELLS),
        "shift": fixed_table(rows, CELLS, ("exact", "any-shape")),
        "centre": fixed_table(rows, CELLS, ("median", "mean")),
        "rules": rule_table(rows, CELLS),
    }


def fill(text: str, rows: list[Row]) -> str:
    """``text`` with every table between ``<!-- coverage: NAME -->`` and ``<!-- end -->`` made anew.

    KeyError for a name that there is no table of.
    """
    made = tables(rows)
    return re.sub(
        r"(<!-- coverage: (\w+) -->\n).*?(<!-- end -->)",
        lambda place: f"{place[1]}\n{made[place[2]]}\n\n{place[3]}",
        text,
        flags=re.DOTALL,
    )


def cell_table(cells: tuple[Cell, ...]) -> str:
    """Markdown: the simulated cells."""
    lines = ["cell | treatment, baseline", "--- | ---", *(f"{cell.name} | {cell.description}" for cell in cells)]
    return "\n".join(f"| {line} |" for line in lines)


def fixed_table(rows: list[Row], cells: tuple[Cell, ...], intervals: tuple[str, ...]) -> str:
    """Markdown: coverage in percent of each of ``intervals`` at fixed n."""
    shown = (6, 10, 20, 40, 60)
    found = {(r.cell, r.interval, r.n): r.coverage for r in rows if r.rule == "fixed"}
    head = ["cell", *(f"{interval} {n}" for interval in intervals for n in shown)]
    lines = [" | ".join(head), " | ".join(["---", *["--:"] * (len(head) - 1)])]
    for cell in cells:
        values = [found.get((cell.name, interval, n)) for interval in intervals for n in shown]
        lines.append(" | ".join([cell.name, *(_percent(value) for value in values)]))
    return "\n".join(f"| {line} |" for line in lines)


def rule_table(rows: list[Row], cells: tuple[Cell, ...]) -> str:
    """Markdown: lowest coverage in percent over the targets, for each rule."""
    head = ["cell", *(rule for rule, _, _ in RULES), "plan: median", "plan: mean 95%"]
    lines = [" | ".join(head), " | ".join(["---", *["--:"] * (len(head) - 1)])]
    columns = [(rule, reported) for rule, _, reported in RULES] + [("plan", "spent-median"), ("plan", "mean")]
    for cell in cells:
        worst = {(r.rule, r.interval): r.coverage for r in rows if r.cell == cell.name and r.worst}
        lines.append(" | ".join([cell.name, *(_percent(worst.get(column)) for column in columns)]))
    return "\n".join(f"| {line} |" for line in lines)


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"
