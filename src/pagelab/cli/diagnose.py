"""``pagelab diagnose``: the source of variance between executions of a program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.options import (
    JUDGE,
    MEASURE,
    OUTPUT,
    Level,
    MeasureRegex,
    Seed,
    Timeout,
    command_words,
    free_directory,
)
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import quoted

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.diagnose.model import Diagnosis, Settings

_PIPED_WIDTH = 110
_WITH_SHIFTS = 90
"""Columns from which the table has the shifts of means."""


def diagnose_command(
    argv: Annotated[
        list[str] | None,
        typer.Argument(metavar="[--] CMD...", help="The program and its arguments.", callback=command_words),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option("--minutes", "-m", parser=minutes_of, metavar="N", help="Budget of time.", rich_help_panel=JUDGE),
    ] = 10.0,
    into: Annotated[
        Path | None,
        typer.Option(
            "--into",
            metavar="DIR",
            help="Directory of the diagnosis (default: CMD.diagnosis, or the next free number).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", metavar="DIR", help="Continue an interrupted diagnosis.", rich_help_panel=OUTPUT),
    ] = None,
    unchanged: Annotated[
        float,
        typer.Option(
            "--unchanged",
            metavar="PERCENT",
            help="The mean is unchanged if its interval lies within ± this share.",
            rich_help_panel=JUDGE,
        ),
    ] = 1.0,
    negligible: Annotated[
        float,
        typer.Option(
            "--negligible",
            metavar="PERCENT",
            help="A spread with its whole interval below this needs no explanation.",
            rich_help_panel=JUDGE,
        ),
    ] = 1.0,
    level: Level = 0.95,
    seed: Seed = 1,
    metric: Annotated[
        str,
        typer.Option("--metric", metavar="NAME", help="wall_s, user_s, measure.NAME ...", rich_help_panel=MEASURE),
    ] = "wall_s",
    measure_regex: MeasureRegex = None,
    timeout: Timeout = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the diagnosis as JSON (pagelab.diagnosis/2).", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Find the source of a program's variation in run time from execution to execution, and a way to remove it.

    Runs the program many times, everything at its default and with one source of variance pinned at a time (ASLR,
    environment size, page size, page placement, page cache, CPU), in random order. It measures its recommendation again
    in fresh executions, and quotes only those.

    Exit codes: 0 done, also when nothing was found; 1 the program fails; 2 bad input, or too small a budget.

    **Examples**

        pagelab diagnose -- ./bench

        sudo pagelab diagnose --minutes 30 -- ./bench --size 1000

        pagelab diagnose --resume bench.diagnosis
    """
    from pagelab.diagnose.campaign import PILOT
    from pagelab.diagnose.page import write
    from pagelab.diagnose.run import begin
    from pagelab.diagnose.run import resume as go_on
    from pagelab.errors import BadInputError
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    if resume is not None:
        if argv or into is not None:
            raise BadInputError("--resume DIR goes without a command and without --into: both are known from DIR")
        directory, found = resume, go_on(resume, local_tools(by_option=True), for_terminal())
    elif not argv:
        raise BadInputError("name a program; such as: pagelab diagnose -- ./bench --size 1000")
    else:
        settings = _settings(argv, minutes, unchanged, negligible, level, seed, metric, measure_regex, timeout)
        # A directory that is named is refused where it has a diagnosis, with the command that continues it.
        claimed = None if into else free_directory(None, Path(argv[0]).name, ".diagnosis", "", PILOT)
        directory = claimed.path if claimed else Path(into or "")
        found = begin(settings, directory, local_tools(by_option=True), for_terminal(), claimed=claimed)
    page = write(directory, found)
    if as_json:
        terminal.echo(found.model_dump_json(by_alias=True, indent=1))
    else:
        console = terminal.console(highlight=False)
        if not console.is_terminal and "COLUMNS" not in os.environ:
            console.width = _PIPED_WIDTH
        show(found, console, directory)
        terminal.echo(f"\npicture: {page}\nall executions: pagelab report {quoted(directory)}")


def _settings(
    argv: list[str],
    minutes: float,
    unchanged: float,
    negligible: float,
    level: float,
    seed: int,
    metric: str,
    regex: str | None,
    timeout: float | None,
) -> Settings:
    from pydantic import ValidationError

    from pagelab.diagnose.model import Settings
    from pagelab.errors import BadInputError

    try:
        return Settings(
            argv=argv,
            cwd=str(Path.cwd()),
            minutes=minutes,
            seed=seed,
            level=level,
            unchanged=unchanged / 100,
            negligible=negligible / 100,
            metric=metric,
            regex=regex,
            timeout_s=timeout,
        )
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0])
        option = {"timeout_s": "timeout", "regex": "measure-regex"}.get(name, name)
        typed = {"unchanged": unchanged, "negligible": negligible}.get(name, first["input"])
        wanted = "allowed: more than 0, less than 100 (percent)" if typed is not first["input"] else first["msg"]
        raise BadInputError(f"--{option} {typed}: {wanted}") from None


def show(found: Diagnosis, console: Console, directory: Path) -> None:
    """The answer (cause, picture, fix), then all findings."""
    from pagelab.diagnose import answer, words

    following = answer.following(found, directory)
    console.print(found.headline, style="bold", markup=False)
    for line in ["", *_picture(found, directory), *_shares(found)]:
        console.print(line, markup=False, no_wrap=True, overflow="ignore", crop=False)
    # A command that is broken into lines could not be copied.
    named = f"{'fix' if found.outcome == 'confirmed' else 'next'}: {following.command}\n      ({following.why})"
    console.print(named, markup=False, soft_wrap=True)
    if found.caveat is not None:
        grade = {"serious": "serious", "warning": "warning", "info": "info"}[found.caveat.severity]
        console.print(f"{grade}: {found.caveat.text}", markup=False)
    console.print()
    for sentence in found.sentences + found.interactions:
        console.print(f"  {sentence}", markup=False)
    console.print()
    console.print(_table(found, console.width))
    for line in words.compared_with(found.findings):
        console.print(line, markup=False)
    _confirmation(found, console)
    for note in found.notes:
        console.print(f"info: {note}", markup=False)


def _picture(found: Diagnosis, directory: Path) -> list[str]:
    """The default and the pin beside it, from fresh executions; where there are none, the default alone."""
    import numpy as np

    from pagelab.analysis.metrics import metric_named
    from pagelab.diagnose import words
    from pagelab.diagnose.campaign import times_of
    from pagelab.diagnose.specs import COPIES, DEFAULT, default_names
    from pagelab.diagnose.strip import Row, strip

    one = found.confirmation
    times = times_of(directory if one is None else directory / "confirmation")
    values = np.concatenate([times[name] for name in (default_names(COPIES) if one is None else [DEFAULT])])
    spread = found.default_spread.estimate if one is None else one.cv_default
    rows = [Row(DEFAULT, values, f"spread {words.spread(spread)}")]
    if one is not None:
        rows.append(Row(one.recommended, times[one.recommended], f"spread {words.spread(one.cv_recommended)}"))
    ended = [Row(row.label, row.times[np.isfinite(row.times)], row.text) for row in rows]
    lines = strip([row for row in ended if row.times.size], metric_named(found.metric))
    return [*lines, ""] if lines else []


_CELLS = {"cause": "█", "machine": "▓", "unexplained": "░"}


def _shares(found: Diagnosis) -> list[str]:
    """One bar of the variance, with its legend."""
    from pagelab.diagnose.answer import share_text, shares
    from pagelab.diagnose.strip import bar

    parts = shares(found)
    if not parts:
        return []
    legend = "  ".join(f"{_CELLS[one.kind]} {share_text(one)}" for one in parts)
    head = "of the variance  "
    return [f"{head}{bar([(_CELLS[one.kind], one.share) for one in parts])}", f"{'':{len(head)}}{legend}", ""]


def _table(found: Diagnosis, width: int) -> object:
    """All findings; the shifts of means only where their column leaves room for the verdicts."""
    from rich.table import Table

    from pagelab.analysis import wording
    from pagelab.diagnose import report_tables, words

    table = Table(box=None, pad_edge=False)
    shifts = ("mean shift",) if width >= _WITH_SHIFTS else ()
    for head in ("pinned", "variance removed", "SD ratio", *shifts):
        table.add_column(head, no_wrap=True)
    table.add_column("verdict")
    for one in found.findings:
        if one.sd_ratio is not None and one.removed is not None:
            shift = [words.plus_minus(one.mean_shift)] if shifts else []
            table.add_row(one.label, words.gone(one.removed), words.ratio(one.sd_ratio), *shift, one.told)
    spread = words.spread(found.default_spread.estimate)
    each = wording.count(found.blocks, "execution")
    table.caption = f"default: spread {spread}; {each} of each value; intervals {wording.level(found.settings.level)}"
    said = report_tables.coverage_of(found)
    if said:
        table.caption += f"\n{said}"
    table.caption_justify = "left"
    return table


def _confirmation(found: Diagnosis, console: Console) -> None:
    from pagelab.diagnose import words

    confirmation = found.confirmation
    if confirmation is None:
        return
    console.print(f"\nconfirmation, {confirmation.executions} fresh executions of each, interleaved:")
    for one in confirmation.contrasts:
        console.print(
            f"  {confirmation.recommended} {words.spread(confirmation.cv_recommended)}, against {one.against} "
            f"{words.spread(one.cv_against)}: {words.gone(one.removed)} of the variance removed, SD ratio "
            f"{words.ratio(one.sd_ratio)}",
            markup=False,
        )
    console.print(f"  mean {words.plus_minus(confirmation.mean_shift)} against the default", markup=False)
