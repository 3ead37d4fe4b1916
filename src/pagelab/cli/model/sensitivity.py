"""``pagelab model sensitivity``: the effect of wrong counts on predictions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import Seed

if TYPE_CHECKING:
    from pagelab.model_run.wrong_simulator import SimulatorSensitivity
    from pagelab.models.base import Model
    from pagelab.models.sensitivity import Sensitivity


def sensitivity_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.model", help="A file of pagelab model import.")],
    by: Annotated[
        float | None, typer.Option("--by", metavar="PERCENT", help="Error of each (default: 10; --simulator: 50).")
    ] = None,
    simulator: Annotated[
        bool,
        typer.Option(
            "--simulator", help="Change the simulator's entries, ways and walk costs; for models of pagelab model run."
        ),
    ] = False,
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Just this one; repeat for several (default: all)."),
    ] = None,
    folds: Annotated[int | None, typer.Option("--folds", metavar="K", help="Folds of the layouts (10).")] = None,
    seed: Seed = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the errors as JSON.")] = False,
) -> None:
    """Find the effect of wrong counts: the maximal error on layouts left out, with their H, M or C lower and higher.

    The models are fitted to the counts as they are: this is a simulator that disagrees with the one of the training.
    With --simulator, the test layouts are simulated with a TLB of other entries, other ways and other walk costs.

    **Examples**

        pagelab model sensitivity gups.model

        pagelab model sensitivity gups.model --by 50 --model gp --model mosmodel

        pagelab model sensitivity gups.model --simulator
    """
    from pagelab.models.catalogue import chosen
    from pagelab.models.document import read
    from pagelab.models.judgement import FOLDS
    from pagelab.models.sensitivity import sensitivity

    if simulator:
        _of_simulator(file, chosen(model, seed), 50.0 if by is None else by, as_json=as_json)
        return
    points = read(file).points()
    count = folds if folds is not None else min(FOLDS, points.roles.count("train"))
    found = sensitivity(points, chosen(model, seed), by=(10.0 if by is None else by) / 100, folds=count, seed=seed)
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else _text(found))


def _of_simulator(path: Path, models: list[Model], by: float, *, as_json: bool) -> None:
    from pagelab.model_run.wrong_simulator import simulator_sensitivity
    from pagelab.models.document import read

    found = simulator_sensitivity(read(path), path, models, by=by / 100)
    terminal.echo(found.model_dump_json(by_alias=True, indent=1) if as_json else _simulator_text(found))


def _simulator_text(found: SimulatorSensitivity) -> str:
    from pagelab.analysis import wording

    able = [one for one in found.changes if not one.refusal]
    names = list(able[0].errors) if able else []
    counts = list(able[0].counts) if able else []
    rows = [["simulator", *counts, *names]]
    for one in able:
        change = one.what if one.by == 0 else f"{one.what} {'−' if one.by < 0 else '+'}{abs(100 * one.by):g}%"
        errors = [wording.percent(one.errors[name], signed=False) for name in names]
        rows.append([change, *(_ratio(one.counts[name]) for name in counts), *errors])
    head = (
        f"{found.workload}: maximal errors on {found.test_layouts} test layouts, whose counts are of a simulator that "
        f"differs from {found.processor}"
    )
    lines = [head, *_columns(rows)]
    lines += [f"{one.what} {100 * one.by:+g}%: not simulated: {one.refusal}" for one in found.changes if one.refusal]
    return "\n".join([*lines, *(f"not fitted: {why}" for why in found.refusals.values())])


def _ratio(value: float | None) -> str:
    return "from 0" if value is None else f"× {value:.2f}"


def _columns(rows: list[list[str]]) -> list[str]:
    """Rows in columns, the first aligned to the left, the others to the right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            [f"{row[0]:<{widths[0]}}", *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]


def _text(found: Sensitivity) -> str:
    from pagelab.analysis import wording

    able = [one for one in found.models if one.unchanged is not None]
    inputs = list(able[0].lower) if able else []
    change = f"{100 * found.by:g}%"
    rows = [["model", "unchanged", *(f"{name} {sign}{change}" for name in inputs for sign in ("−", "+"))]]
    for one in able:
        values = [one.unchanged, *(side[name] for name in inputs for side in (one.lower, one.higher))]
        rows.append([one.model, *("–" if v is None else wording.percent(v, signed=False) for v in values)])
    lines = [f"{found.workload}: maximal errors on layouts left out ({found.folds} folds), with wrong counts of these"]
    lines += _columns(rows)
    lines += [f"not fitted: {one.refusal}" for one in found.models if one.refusal]
    return "\n".join(lines)
