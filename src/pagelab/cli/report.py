"""``pagelab report``: the report of a study, as one page and as files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.errors import quoted

if TYPE_CHECKING:
    from pagelab.analysis.following import Following


def report_command(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="The study's directory.")],
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Directory of the report (default: DIR/report)."),
    ] = None,
    format_: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="html, svg, png or data (CSV, Parquet, JSON); repeat for several (default: all).",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
) -> None:
    """Write the report of a study: one self-contained page, plots and data.

    It reads the store and runs nothing: it works while the study runs, on a store from another machine, and on
    imported data. An older report in the same place is replaced; with --format, its files of other formats stay.

    **Examples**

        pagelab report page-size.study

        pagelab report page-size.study --open

        pagelab report page-size.study --format svg --format data --out /tmp/for-the-paper
    """
    from pagelab.analysis import NothingToAnalyseError, load
    from pagelab.analysis.following import following_of
    from pagelab.diagnose.page import PAGE as DIAGNOSIS
    from pagelab.errors import BadInputError
    from pagelab.report.write import FORMATS, write_report
    from pagelab.study.store import Store

    formats = tuple(dict.fromkeys(format_ or FORMATS))
    for name in formats:
        if name not in FORMATS:
            raise BadInputError(f'--format: "{name}" is unknown; allowed: {", ".join(FORMATS)}')
    with Store.open(directory, write=False) as store:
        data = load(store)
    try:
        written = write_report(data, out or _beside(directory), formats)
    except NothingToAnalyseError as error:
        raise BadInputError(f"{directory}: {error}; see it with: pagelab study status {quoted(directory)}") from None
    # The answer, its most serious warning, and the next command; the other warnings follow.
    terminal.echo(written.analysis.headline)
    first, *others = written.analysis.caveats or (None,)
    if first is not None:
        terminal.echo(f"warning: {first}")
    diagnosed = directory / DIAGNOSIS
    if diagnosed.exists():
        terminal.echo(f"next: see the diagnosis that these executions were for: {diagnosed}")
    else:
        terminal.echo(_next(following_of(written.analysis, data), written.directory, directory))
    terminal.echo(f"report: {(written.page or written.directory).resolve()}")
    for caveat in others:
        terminal.echo(f"warning: {caveat}")
    if show and written.page is not None:
        _open(written.page)


def _next(following: Following, report: Path, study: Path) -> str:
    """The next command; where nothing remains to be done, the files that have every number."""
    if following.table is None:
        return f"next: {following.command}\n      ({following.why})"
    if (report / following.table).exists():
        return f"every number of it: {report / following.table}, analysis.json"
    return f"next: pagelab report {quoted(study)} --format data\n      ({following.why})"


def _beside(directory: Path) -> Path:
    """``report`` in the study's directory, also when the store itself was named."""
    return (directory if directory.is_dir() else directory.parent) / "report"


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        terminal.echo(f"no browser found; open it yourself: {page.resolve().as_uri()}", err=True)
