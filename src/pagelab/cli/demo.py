"""``pagelab demo``: a study of real programs and its report, from one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal, whole_file
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import quoted

if TYPE_CHECKING:
    from pagelab.study.session import Finished


def demo_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="Directory of inputs, store and report.")] = Path(
        "demo-out"
    ),
    minutes: Annotated[
        float | None,
        typer.Option("--minutes", "-m", parser=minutes_of, metavar="N", help="Time for the runs (default: 5)."),
    ] = None,
    executions: Annotated[
        int | None, typer.Option("--executions", min=1, help="Executions of each condition, instead of a time.")
    ] = None,
    report: Annotated[bool, typer.Option("--report/--no-report", help="Write the report at the end.")] = True,
) -> None:
    """Measure the effect of 2 MiB pages and prepaging on programs of this machine: a study and its report, in minutes.

    Conditions that this machine, or this user, cannot run are left out, and the report lists them. Interrupted, it
    continues where it stopped when it is called again.

    **Examples**

        pagelab demo

        pagelab demo --minutes 20 --out /data/demo
    """
    if minutes is not None and executions is not None:
        from pagelab.errors import BadInputError

        raise BadInputError("--executions and --minutes exclude each other: each decides how many executions there are")
    finished = _study(out, minutes, executions)
    if report:
        from pagelab.cli.report import report_command

        report_command(out, out=None, format_=None, show=False)
    if finished.failed:
        from pagelab.errors import RunFailedError

        raise RunFailedError(
            f"{finished.failed} of {finished.runs} runs failed (they are kept); see: pagelab study status {quoted(out)}"
        )


def _study(out: Path, minutes: float | None, executions: int | None) -> Finished:
    from pagelab.study.control import resume_study, run_study
    from pagelab.study.demo import INPUTS, make_inputs
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal
    from pagelab.study.store import NAME

    tools, progress = local_tools(), for_terminal()
    if (out / NAME).exists():
        terminal.echo(f"continuing the study in {out}; for a new one: pagelab demo --out ANOTHER")
        minutes, executions = _added(out, minutes, executions)
        return resume_study(out, tools, progress=progress, minutes=minutes, executions=executions)
    terminal.echo(f"making inputs in {out / INPUTS}")
    spec = make_inputs(out / INPUTS)
    if executions is not None:
        text = spec.read_text(encoding="utf-8")
        whole_file.put(spec, text.replace("\nminutes = 5\n", f"\nexecutions = {executions}\n"))
    return run_study(spec, out, tools, progress=progress, skip_impossible=True, minutes=minutes)


def _added(out: Path, minutes: float | None, executions: int | None) -> tuple[float | None, int | None]:
    """Minutes, executions that the options add to the demo in ``out``; none if an interrupted command is retyped."""
    from pagelab.study.store import Store

    with Store.open(out, write=False) as store:
        plan, unfinished = store.plan(), len(store.finished()) < len(store.slots())
    if unfinished and minutes == plan.minutes:
        minutes = None
    return minutes, None if executions == plan.executions else executions
