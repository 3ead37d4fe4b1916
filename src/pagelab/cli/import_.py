"""``pagelab import``: measurements of other tools, into a store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab import terminal
from pagelab.errors import quoted


def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV with a header, or hyperfine's JSON.")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="The study's directory (default: FILE.study).")
    ] = None,
    format_: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="csv or hyperfine (default: by the file).")
    ] = None,
    time: Annotated[
        str | None, typer.Option("--time", metavar="COLUMN", help="CSV: seconds (default: time, else the last).")
    ] = None,
    factor: Annotated[
        str | None, typer.Option("--factor", metavar="COLUMN", help="CSV: the compared column (default: the first).")
    ] = None,
    workload: Annotated[
        str | None, typer.Option("--workload", metavar="COLUMN", help="CSV: the workload's name, if it has one.")
    ] = None,
    execution: Annotated[
        str | None,
        typer.Option(
            "--execution",
            metavar="COLUMN",
            help="CSV: rows with the same value are measurements of one execution (default: execution or run).",
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option("--baseline", metavar="LABEL", help="Compare with this one (default: the first).")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", metavar="VALUE=LABEL", help="CSV: a name for a value, as 0=off.")
    ] = None,
    question: Annotated[str, typer.Option("--question", help="The question that the report answers.")] = "",
    level: Annotated[float, typer.Option("--level", min=0.5, max=0.9999, help="Confidence level.")] = 0.95,
) -> None:
    """Import executions measured elsewhere; `pagelab report` then works on them.

    A CSV has a header, one row an execution, a column of seconds and one or more columns that say the condition. With a
    column "execution", rows are measurements: those with the same value there belong to one execution. A command
    that hyperfine timed twice is compared with itself.

    **Examples**

        pagelab import buffering.csv --label 0=off --label 1=on --into buffering.study

        hyperfine --export-json sort.json 'sort a' 'sort b' && pagelab import sort.json

        pagelab report buffering.study
    """
    from pagelab.analysis.wording import count
    from pagelab.errors import BadInputError
    from pagelab.study.imported import (
        Columns,
        guess_format,
        guessed_time,
        import_into,
        metric_of,
        read_csv,
        read_hyperfine,
    )

    chosen = format_ or guess_format(file)
    if chosen not in ("csv", "hyperfine"):
        raise BadInputError(f'--format: "{chosen}" is unknown; allowed: csv, hyperfine')
    labels = dict(_pair(text) for text in label or [])
    columns = Columns(time, factor, workload, execution, labels)
    samples = read_csv(file, columns) if chosen == "csv" else read_hyperfine(file)
    directory = into or Path(f"{file.stem}.study")
    plan = import_into(
        directory,
        samples,
        origin=file,
        name=file.stem,
        question=question,
        baseline=baseline,
        level=level,
        metric=metric_of(samples),
    )
    guessed = guessed_time(file, columns) if chosen == "csv" else None
    if guessed is not None:
        terminal.echo(f'seconds are taken from the last column, "{guessed}"; another: --time COLUMN')
    if len(plan.conditions) == 1:
        (only,) = plan.conditions
        terminal.echo(f"warning: only one condition ({only.name}): nothing to compare; another factor: --factor COLUMN")
    measured = sum(len(sample.measurements) for sample in samples)
    inside = f" with {count(measured, 'measurement')}" if measured else ""
    against = f", compared with {plan.baseline}" if len(plan.conditions) > 1 else ""
    terminal.echo(
        f"{count(len(samples), 'execution')}{inside} of {count(len(plan.conditions), 'condition')}{against}; "
        f"see them with: pagelab report {quoted(directory)}"
    )


def _pair(text: str) -> tuple[str, str]:
    from pagelab.errors import BadInputError

    value, sign, name = text.partition("=")
    if not sign or not name:
        raise BadInputError(f'--label: "{text}" is not VALUE=LABEL, such as 0=off')
    return value, name
