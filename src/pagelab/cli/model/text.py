"""What ``pagelab model fit`` and ``report`` print: the verdict, the errors with a picture, formulas, warnings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pagelab.models.document import FitDocument, Fits, ModelFile
    from pagelab.models.over_workloads import Fitted
    from pagelab.report.tables import Table

_WIDTH = 31
_LOW, _HIGH = 1e-3, 2.0
"""Ends of the picture's logarithmic axis, as fractions."""
_TICKS = ((1e-3, "0.1%"), (1e-2, "1%"), (1e-1, "10%"), (1.0, "100%"))


def text(file: ModelFile, fits: Fits) -> str:
    """The whole text for one workload."""
    from pagelab.models import answer
    from pagelab.report.tables import without_empty_columns

    lines = [answer.verdict(file, fits), ""]
    lines += _table(without_empty_columns(answer.table(fits)), fits)
    lines += ["○ in-sample  ● one left out  ■ test layouts; paper: the largest of all its workloads and machines", ""]
    lines += [f"{one.model}: {one.formula}" for one in fits.models if one.formula is not None]
    lines += answer.coverage_told(fits)
    alone = ", ".join(f"{name} {value:.2f}" for name, value in sorted(fits.r_squared.items()))
    lines += ["", f"R² of a line in one input: {alone}", *answer.contradictions_told(file.points())]
    lines += answer.agreements_told(file.points())
    refused = [one for one in fits.models if one.refusal]
    lines += [f"not fitted: {one.refusal}" for one in refused]
    lines += answer.not_validated_told(fits)
    lines += [f"warning: {one.message}" for one in answer.told_of(file)]
    return "\n".join(lines)


def text_over(found: Sequence[Fitted]) -> str:
    """The text for several workloads: the verdict, each model's errors by workload, the workloads' warnings."""
    from pagelab.models import answer, over_workloads

    lines = [over_workloads.verdict(found)]
    for table in over_workloads.tables(found):
        lines += ["", f"{table.caption}:", *_columns(table), table.note]
    refused = [f"{one.name}: not fitted: {fit.refusal}" for one in found for fit in one.fits.models if fit.refusal]
    warnings = [f"warning: {one.name}: {warning.message}" for one in found for warning in answer.told_of(one.file)]
    return "\n".join([*lines, *([""] if refused or warnings else []), *refused, *warnings])


def _columns(table: Table) -> list[str]:
    """Header and rows, the first column aligned to the left, the others to the right."""
    rows = [table.columns, *table.rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _table(table: Table, fits: Fits) -> list[str]:
    pictures = [_axis(), *(_marks(fits.named(row[0])) for row in table.rows)]
    return [f"{line}  {picture}".rstrip() for line, picture in zip(_columns(table), pictures, strict=True)]


def _place(error: float) -> int:
    share = math.log(min(max(error, _LOW), _HIGH) / _LOW) / math.log(_HIGH / _LOW)
    return round(share * (_WIDTH - 1))


def _axis() -> str:
    line = [" "] * (_WIDTH + 4)
    for value, label in _TICKS:
        at = _place(value)
        line[at : at + len(label)] = label
    return "".join(line)


def _marks(one: FitDocument | None) -> str:
    if one is None:
        return ""
    line = [" "] * _WIDTH
    for value, _ in _TICKS:
        line[_place(value)] = "·"
    for errors, mark in ((one.in_sample, "○"), (one.left_out, "●"), (one.test, "■")):
        if errors is not None:
            line[_place(errors.maximum)] = mark
    return "".join(line)
