"""``pagelab model sensitivity``: what wrong counts do to predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import Seed

if TYPE_CHECKING:
    from pagelab.models.sensitivity import Sensitivity


def sensitivity_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.model", help="A file of pagelab model import.")],
    by: Annotated[float, typer.Option("--by", metavar="PERCENT", help="How far each input is off.")] = 10.0,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Just this one; repeat for several (default: all)."),
    ] = None,
    folds: Annotated[int | None, typer.Option("--folds", metavar="K", help="Folds of the layouts (10).")] = None,
    seed: Seed = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the errors as JSON.")] = False,
) -> None:
    """Tell what wrong counts do: the maximal error on layouts left out, with H, M or C of these lower and higher.

    The models are fitted to the counts as they are: this is a simulator that disagrees with the one of the training.

    **Examples**

        pagelab model sensitivity gups.model

        pagelab model sensitivity gups.model --by 50 --model gp --model mosmodel
    """
    from pagelab.models.catalogue import chosen
    from pagelab.models.document import read
    from pagelab.models.judgement import FOLDS
    from pagelab.models.sensitivity import sensitivity

    points = read(file).points()
    count = folds if folds is not None else min(FOLDS, points.roles.count("train"))
    found = sensitivity(points, chosen(model, seed), by=by / 100, folds=count, seed=seed)
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else _text(found))


def _text(found: Sensitivity) -> str:
    from pagelab.analysis import wording

    able = [one for one in found.models if one.unchanged is not None]
    inputs = list(able[0].lower) if able else []
    change = f"{100 * found.by:g}%"
    rows = [["model", "unchanged", *(f"{name} {sign}{change}" for name in inputs for sign in ("−", "+"))]]
    for one in able:
        values = [one.unchanged, *(side[name] for name in inputs for side in (one.lower, one.higher))]
        rows.append([one.model, *("–" if v is None else wording.percent(v, signed=False) for v in values)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [f"{found.workload}: maximal errors on layouts left out ({found.folds} folds), with wrong counts of these"]
    for row in rows:
        cells = [
            f"{row[0]:<{widths[0]}}",
            *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append("  ".join(cells))
    lines += [f"not fitted: {one.refusal}" for one in found.models if one.refusal]
    return "\n".join(lines)
