"""``pagelab model fit``: every model fitted to a file's layouts, and judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import Seed

if TYPE_CHECKING:
    from pagelab.models.document import ModelFile


def fit_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.model", help="A file of pagelab model import.")],
    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="NAME", help="Just this one; repeat for several (default: all)."),
    ] = None,
    folds: Annotated[
        int | None, typer.Option("--folds", metavar="K", help="Folds beside leaving one out (10).")
    ] = None,
    seed: Seed = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Fit the models and judge them: in-sample, in K folds, one layout left out at a time, on test layouts.

    What is found is kept in the file; `pagelab model report` shows it again.

    **Examples**

        pagelab model fit gups.model

        pagelab model fit gups.model --model gp --model mosmodel --folds 5
    """
    from pagelab.cli.model.text import text
    from pagelab.errors import BadInputError, quoted
    from pagelab.models.answer import report_of
    from pagelab.models.document import read, write

    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: not within 0 ... 2**63 - 1")
    found = fitted(read(file, refit=True), model, folds, seed)
    write(file, found)
    assert found.fits is not None
    terminal.echo(
        report_of(found, found.fits).model_dump_json(by_alias=True, indent=1) if as_json else text(found, found.fits)
    )
    if not as_json:
        following = f"pagelab model report {quoted(file)} --out DIR"
        terminal.echo(f"\nnext: {following}\n      (the same as a page, with figures)")


def fitted(file: ModelFile, names: list[str] | None, folds: int | None, seed: int) -> ModelFile:
    """The file with its models fitted and judged."""
    from pagelab.models.catalogue import chosen
    from pagelab.models.document import fits_of
    from pagelab.models.judgement import FOLDS, judge

    points = file.points()
    count = folds if folds is not None else min(FOLDS, points.roles.count("train"))
    judgement = judge(points, chosen(names, seed), folds=count, seed=seed, report=_progress())
    return file.model_copy(update={"fits": fits_of(points, judgement, seed)})


def _progress() -> Callable[[str], None] | None:
    """Shows the model that is being fitted, if standard error is a terminal."""
    import sys

    if not sys.stderr.isatty():
        return None
    return lambda name: terminal.say(f"\r\x1b[Kfit {name}")
