"""``pagelab simulate sweep``: traces × configurations × seeds, here or on a cluster, into one dataset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagelab import terminal

if TYPE_CHECKING:
    from pagelab.simulate.sweeping.operations import Task
    from pagelab.simulate.sweeping.plan import Plan
    from pagelab.simulate.sweeping.run import Sweep

_LISTED = 20
"""Tasks, or failures, that are listed on a terminal."""
_SPREAD_SHOWN = 40
"""Configurations whose spread is shown on a terminal."""


def sweep_command(
    spec: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep: a TOML file (docs/simulate-sweep).")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The dataset; an existing one is continued.")],
    processes: Annotated[
        int | None, typer.Option("--processes", metavar="N", min=0, help="Local processes (default: processors).")
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", metavar="ADDRESS", help="A Dask scheduler, tcp://host:port, instead of processes."),
    ] = None,
    attempts: Annotated[
        int, typer.Option("--attempts", metavar="N", min=1, help="Local processes that may die in one task.")
    ] = 3,
    figure: Annotated[
        Path | None,
        typer.Option("--figure", metavar="STEM", help="Each execution's cycles of memory, as STEM.svg, .png, .html."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and list the tasks; do nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Simulate many traces in many configurations with many seeds, on all processors or on a Dask cluster.

    The results are one Parquet dataset. Finished tasks are never repeated: after Ctrl-C, a crash, or an addition
    to the file, the same command does the missing ones.

    **Examples**

        pagelab simulate sweep colours.toml --out colours.sweep --dry-run

        pagelab simulate sweep colours.toml --out colours.sweep

        pagelab simulate sweep colours.toml --out colours.sweep --cluster tcp://10.0.0.1:8786
    """
    from pagelab.cli.simulate.values import warn_of_killed
    from pagelab.errors import BadInputError
    from pagelab.simulate.sweeping.run import planned

    if cluster is not None and processes is not None:
        raise BadInputError("--processes is for local processes: leave it out with --cluster")
    if dry_run:
        _show_plan(*planned(spec, out), as_json=as_json)
        return
    done = _run(spec, out, {"processes": processes, "cluster": cluster, "attempts": attempts})
    for trace in done.plan.traces:
        warn_of_killed(Path(trace.path))
    if as_json:
        terminal.echo(json.dumps(_as_data(done), indent=1))
    else:
        terminal.echo(_summary(done))
        _show_spread(done)
    if figure is not None:
        _draw(done, figure)
    _conclude(done, spec)


def _run(spec: Path, out: Path, how: dict[str, Any]) -> Sweep:
    """Raises SweepInterruptedError on Ctrl-C and SIGTERM, which end the workers."""
    from pagelab.cli.simulate.progress import TASKS, shown
    from pagelab.errors import quoted
    from pagelab.simulate.sweeping.operations import SweepInterruptedError
    from pagelab.simulate.sweeping.run import sweep
    from pagelab.study.interrupts import Interrupts

    _quiet_dask()
    at = (0, 0)
    with Interrupts() as interrupts, shown(f"sweep {spec.stem}", TASKS) as report:

        def progress(done: int, total: int, failed: int) -> None:
            nonlocal at
            at = (done, total)
            report(done + failed, total)

        try:
            with interrupts.abandonable():
                return sweep(spec, out, progress=progress, say=_say, **how)
        except KeyboardInterrupt:
            raise SweepInterruptedError(
                f"interrupted: {at[0]} of {at[1]} tasks are done and kept; go on with: "
                f"pagelab simulate sweep {quoted(spec)} --out {quoted(out)}"
            ) from None


def _say(text: str) -> None:
    terminal.say(f"{text}\n")


def _quiet_dask() -> None:
    """Silences Dask's messages about workers, which are for clusters' logs; the sweep reports the relevant ones."""
    import logging

    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    logging.getLogger("tornado").setLevel(logging.CRITICAL)


def _show_plan(plan: Plan, missing: list[Task], *, as_json: bool) -> None:
    from pagelab.analysis.wording import count

    left = {task.digest for task in missing}
    tasks = [{"task": task.digest, "title": task.title, "done": task.digest not in left} for task in plan.tasks]
    if as_json:
        terminal.echo(json.dumps({"name": plan.name, "tasks": tasks}, indent=1))
        return
    terminal.echo(
        f"{plan.name}: {count(len(plan.traces), 'trace')}, {count(len(plan.configurations), 'configuration')}, "
        f"{count(len(tasks), 'task')}; done already: {len(tasks) - len(left)}"
    )
    for task in tasks[:_LISTED]:
        terminal.echo(f"  {task['title']}{'  (done)' if task['done'] else ''}")
    if len(tasks) > _LISTED:
        terminal.echo(f"  … and {len(tasks) - _LISTED} more; all of them with --json")


def _as_data(done: Sweep) -> dict[str, Any]:
    failed = [{"task": task.digest, "title": task.title, "message": why.message} for task, why in done.failed]
    return {
        "name": done.plan.name,
        "directory": str(done.directory),
        "tasks": len(done.plan.tasks),
        "done_before": done.done_before,
        "failed": failed,
    }


def _summary(done: Sweep) -> str:
    total = len(done.plan.tasks)
    before = f" ({done.done_before} of them before)" if done.done_before else ""
    return (
        f"{done.plan.name}: {total - len(done.failed)} of {total} tasks are done{before}; "
        f'read them with: polars.read_parquet("{done.directory}/*.parquet")'
    )


def _show_spread(done: Sweep) -> None:
    """The spread of executions, if there are several and not too many to read."""
    from pagelab.simulate.spread import table

    found = done.spread()
    if 0 < len(found) <= _SPREAD_SHOWN:
        terminal.echo("\n" + "\n".join(table(found, "trace, configuration")))
    elif found:
        terminal.echo(f"how much executions differ, for {len(found)} configurations: pagelab.simulate.Sweep.spread()")


def _draw(done: Sweep, stem: Path) -> None:
    from pagelab.simulate.sweeping.run import cycles_figure
    from pagelab.simulate.tables import write_figure

    written = write_figure(cycles_figure(done.frame()), stem)
    terminal.say(f"wrote {', '.join(map(str, written))}\n")


def _conclude(done: Sweep, spec: Path) -> None:
    """Raises RunFailedError (exit code 1) where tasks failed, with the list."""
    from pagelab.errors import RunFailedError, quoted

    if not done.failed:
        return
    lines = [f"{task.title}: {why.message}" for task, why in done.failed[:_LISTED]]
    if len(done.failed) > _LISTED:
        lines.append(f"… and {len(done.failed) - _LISTED} more, in {done.directory}/_sweep/failed")
    raise RunFailedError(
        f"{len(done.failed)} of {len(done.plan.tasks)} tasks failed:\n  " + "\n  ".join(lines) + "\n"
        "the others are kept; try the failed ones again with: pagelab simulate sweep "
        f"{quoted(spec)} --out {quoted(done.directory)}"
    )
