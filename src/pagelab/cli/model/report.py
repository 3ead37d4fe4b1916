"""``pagelab model report``: a report of a file's models, in the terminal, as a page and as data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pydantic import BaseModel

    from pagelab.models.over_workloads import Fitted

    Ways = tuple[Callable[[], BaseModel], Callable[[], str], Callable[[Path], Path]]
    """The functions that make a report: as data, as text, as a page in a directory."""


def report_command(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="NAME.model...", help="Models (several: one report over all); or one NAME.kinds."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the page, its figures (SVG) and tables there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report the models: a verdict, the errors of each beside the paper's, formulas; with --out a page and its figures.

    Of several workloads it shows each model's errors side by side. It runs nothing and fits nothing anew.

    **Examples**

        pagelab model report gups.model

        pagelab model report gups.model --out gups-models

        pagelab model report gups.model btree.model bfs.model --out models

        pagelab model report solver.kinds --out solver-kinds

        pagelab model report gups.model --json
    """
    report, text, write = _of_kinds(files) or _of_models(files)
    terminal.echo(report().model_dump_json(by_alias=True, indent=1) if as_json else text())
    if out is not None:
        page = write(out)
        if not as_json:
            terminal.echo(f"\nreport: {page.resolve()}")


def _of_kinds(files: Sequence[Path]) -> Ways | None:
    """The report of a directory of `pagelab model kinds`; None if the files are models."""
    from pagelab.model_run.kinds_document import read

    kinds = [one for file in files if (one := read(file)) is not None]
    if not kinds:
        return None
    if len(files) > 1:
        from pagelab.errors import BadInputError

        raise BadInputError(f"{files[0]} and others: kinds of memory are reported one directory at a time")
    from pagelab.model_run.kinds_answer import text
    from pagelab.model_run.kinds_page import write

    return lambda: kinds[0], lambda: text(kinds[0]), lambda out: write(kinds[0], out)


def _of_models(files: Sequence[Path]) -> Ways:
    from pagelab.models.document import read
    from pagelab.models.over_workloads import named

    found = named([(file, read(file)) for file in files])
    return _of_one(found[0]) if len(found) == 1 else _over(found)


def _of_one(one: Fitted) -> Ways:
    from pagelab.cli.model.text import text
    from pagelab.models.answer import report_of
    from pagelab.models.page import write

    return (
        lambda: report_of(one.file, one.fits),
        lambda: text(one.file, one.fits),
        lambda out: write(one.file, one.fits, out),
    )


def _over(found: Sequence[Fitted]) -> Ways:
    from pagelab.cli.model.text import text_over
    from pagelab.models.over_workloads import report_over
    from pagelab.models.page import write_over

    return lambda: report_over(found), lambda: text_over(found), lambda out: write_over(found, out)
