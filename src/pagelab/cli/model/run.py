"""``pagelab model run``: a campaign from a command to a judged model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagelab import terminal
from pagelab.cli.options import MEASURE, OUTPUT, WHAT, Argv, Minutes, Seed, Timeout, checked, described, one_of
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.model_run.document import Asked, Campaign

_MOST_MINUTES = 7 * 24 * 60


def run_command(
    argv: Argv,
    minutes: Minutes = 60.0,
    counts: Annotated[
        str,
        typer.Option(
            "--counts",
            metavar="WAY",
            help="H, M and C: measured, simulated, or auto: measured where they are counted.",
            rich_help_panel=MEASURE,
        ),
    ] = "auto",
    processor: Annotated[
        str | None,
        typer.Option(
            "--processor",
            metavar="NAME|FILE",
            help="Processor that is simulated (default: this machine's preset).",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    caches: Annotated[
        bool, typer.Option("--caches", help="Simulate data caches too: slower.", rich_help_panel=MEASURE)
    ] = False,
    select: Annotated[
        str,
        typer.Option(
            "--select",
            metavar="NAME",
            help="Layouts: adaptive, moselect, profile (the paper's windows), random.",
            rich_help_panel=WHAT,
        ),
    ] = "adaptive",
    layouts: Annotated[
        int | None,
        typer.Option("--layouts", metavar="N", help="Layouts to fit (default: by the time).", rich_help_panel=WHAT),
    ] = None,
    tests: Annotated[
        int, typer.Option("--tests", metavar="N", help="Random layouts that only judge.", rich_help_panel=WHAT)
    ] = 12,
    aim: Annotated[
        float, typer.Option("--aim", metavar="PERCENT", help="Error at which adaptive ends.", rich_help_panel=WHAT)
    ] = 3.0,
    estimator: Annotated[
        str,
        typer.Option(
            "--estimator", metavar="NAME", help="R from repeats: mean, median, low-quantile.", rich_help_panel=MEASURE
        ),
    ] = "median",
    window: Annotated[
        str | None,
        typer.Option("--window", metavar="NAME", help="R is the time in this window.", rich_help_panel=MEASURE),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE", help="A trace of the same command.", rich_help_panel=MEASURE),
    ] = None,
    references: Annotated[
        bool,
        typer.Option(
            "--references", help="Trace every reference, for predictions that need them.", rich_help_panel=MEASURE
        ),
    ] = False,
    timeout: Timeout = None,
    seed: Seed = 1,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Run only trial and pilot; print the plan.", rich_help_panel=OUTPUT)
    ] = False,
    into: Annotated[
        Path | None,
        typer.Option("--into", metavar="DIR", help="Directory (default: CMD.model).", rich_help_panel=OUTPUT),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON; the plan with --dry-run.", rich_help_panel=OUTPUT)
    ] = False,
) -> None:
    """Make a runtime model of a program: layouts, runs, counts, fits and a judgement on layouts that only test.

    H, M and C are the hardware's where it counts them, else simulated from one trace. A pilot tells beforehand how
    many layouts and repeats fit the minutes, and how near a perfect model could come. Given again, the same command
    goes on with a campaign that was stopped or killed.

    Exit codes: 0 done, 2 bad input (a command that fails, too little time), 3 this machine cannot (no counters that
    were asked for, no 2M pages), 130 stopped.

    **Examples**

        pagelab model run --minutes 60 -- ./solver big.in

        pagelab model run --minutes 20 --select profile --layouts 54 --into gups.model -- pagelab-workload gups

        pagelab model run --dry-run -- ./solver big.in
    """
    asked = _asked(
        argv=argv,
        cwd=str(Path.cwd()),
        minutes=minutes,
        counts=counts,
        processor=described(processor),
        caches=caches,
        references=references,
        select=select,
        estimator=estimator,
        layouts=layouts,
        tests=tests,
        aim=aim / 100,
        window=window,
        trace=None if trace is None else str(trace.resolve()),
        seed=seed,
        timeout_s=timeout,
    )
    from pagelab.model_run.run import run
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    directory = into or Path(f"{Path(argv[0]).name}.model")
    campaign = run(asked, directory.resolve(), local_tools(), for_terminal(), dry_run=dry_run)
    terminal.echo(_plan(campaign, as_json=as_json) if dry_run else _answer(campaign, directory, as_json=as_json))


def _asked(**values: Any) -> Asked:
    from pagelab.layouts.campaign import FEWEST_JUDGES
    from pagelab.model_run.document import Asked, CountsWay, EstimatorName, Select
    from pagelab.model_run.planning import FEWEST

    for option, allowed in (("counts", CountsWay), ("select", Select), ("estimator", EstimatorName)):
        one_of(f"--{option}", values[option], allowed)
    checked(seed=values["seed"], minutes=values["minutes"], most_minutes=_MOST_MINUTES)
    if not 0.0001 <= values["aim"] <= 1:
        raise BadInputError(f"--aim {100 * values['aim']:g}: a percentage within 0.01 ... 100")
    if values["layouts"] is not None and not FEWEST <= values["layouts"] <= 200:
        raise BadInputError(f"--layouts {values['layouts']}: not within {FEWEST} ... 200; fewer fit no model")
    if not FEWEST_JUDGES <= values["tests"] <= 200:
        raise BadInputError(f"--tests {values['tests']}: not within {FEWEST_JUDGES} ... 200; fewer judge nothing")
    return Asked(**values)


def _plan(campaign: Campaign, *, as_json: bool) -> str:
    from pagelab.model_run.run import plan_text

    assert campaign.plan is not None
    if as_json:
        return campaign.plan.model_dump_json(indent=1)
    return f"{plan_text(campaign)}\nnext: the same command without --dry-run goes on from here"


def _answer(campaign: Campaign, directory: Path, *, as_json: bool) -> str:
    from pagelab.cli.model.text import text
    from pagelab.model_run.answer import facts, following, verdict
    from pagelab.models.answer import report_of
    from pagelab.models.document import read

    file = read(directory)
    assert file.fits is not None
    if as_json:
        return report_of(file, file.fits).model_dump_json(by_alias=True, indent=1)
    body = text(file, file.fits).splitlines()[1:]
    return "\n".join([verdict(file), *body, "", *facts(campaign, file), following(directory, file)])
