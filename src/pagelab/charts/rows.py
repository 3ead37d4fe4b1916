"""Rows of a chart, grouped by workload: a heading, then the policies."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

import altair as alt


@dataclass(frozen=True)
class Row:
    key: str
    """A unique text, which screen readers read."""
    label: str
    of: tuple[str, str] | None
    """(workload, policy); None for the heading of a group."""


@dataclass(frozen=True)
class Rows:
    rows: tuple[Row, ...]

    def key(self, workload: str, policy: str) -> str:
        """The key of a policy's row. Raises StopIteration where there is none."""
        return next(row.key for row in self.rows if row.of == (workload, policy))

    def axis(self) -> alt.Y:
        """The vertical axis: headings are bold, and labels replace keys."""
        labels = json.dumps({row.key: row.label for row in self.rows})
        heading = f"indexof({json.dumps([row.key for row in self.rows if row.of is None])}, datum.value) >= 0"
        axis = alt.Axis(
            labelExpr=f"({labels})[datum.value]",
            labelFontWeight=alt.condition(heading, alt.value("bold"), alt.value("normal")),
            grid=False,
        )
        scale = alt.Scale(domain=[row.key for row in self.rows], type="band")
        return alt.Y("row:N", title=None, sort=None, scale=scale, axis=axis)

    @property
    def labels(self) -> list[str]:
        """The labels at the left."""
        return [row.label for row in self.rows]

    def __len__(self) -> int:
        return len(self.rows)


def grouped(pairs: Iterable[tuple[str, str]]) -> Rows:
    """The rows for (workload, policy) pairs, in order; headings only where there are several workloads."""
    wanted = list(pairs)
    workloads = list(dict.fromkeys(workload for workload, _ in wanted))
    rows: list[Row] = []
    for workload in workloads:
        if len(workloads) > 1:
            rows.append(Row(_unique(workload, rows), workload, None))
        for owner, policy in wanted:
            if owner == workload:
                rows.append(Row(_unique(f"{workload} · {policy}", rows), policy, (workload, policy)))
    return Rows(tuple(rows))


def _unique(key: str, rows: list[Row]) -> str:
    """A key that no row has yet: zero-width spaces distinguish equal imported names."""
    while any(row.key == key for row in rows):
        key += "\u200b"
    return key
