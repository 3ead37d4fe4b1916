"""``pagelab model report``: what the models of a file say, in the terminal, as a page and as data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab import terminal


def report_command(
    file: Annotated[Path, typer.Argument(metavar="NAME.model", help="A file of pagelab model fit.")],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the page, its figures (SVG) and tables there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report the models: a verdict, the errors of each beside the paper's, formulas; with --out a page and its figures.

    It runs nothing and fits nothing anew.

    **Examples**

        pagelab model report gups.model

        pagelab model report gups.model --out gups-models

        pagelab model report gups.model --json
    """
    from pagelab.cli.model.text import text
    from pagelab.errors import BadInputError
    from pagelab.models.answer import report_of
    from pagelab.models.document import read

    found = read(file)
    if found.fits is None:
        raise BadInputError(f"cannot report {file}: nothing was fitted yet; run: pagelab model fit {file}")
    if as_json:
        terminal.echo(report_of(found, found.fits).model_dump_json(by_alias=True, indent=1))
    else:
        terminal.echo(text(found, found.fits))
    if out is not None:
        from pagelab.models.page import write

        page = write(found, found.fits, out)
        if not as_json:
            terminal.echo(f"\nreport: {page.resolve()}")
