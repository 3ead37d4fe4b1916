"""``pagelab study``: run, resume, status, init."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.times import minutes as minutes_of
from pagelab.errors import quoted

if TYPE_CHECKING:
    from pagelab.study.session import Finished
    from pagelab.study.status import ConditionStatus, Status

study_app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Studies: programs × policies, many executions in a recorded random order, in a crash-safe store.",
)

Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="ADDRESS|N",
        help="Share the blocks among the hosts of a Dask scheduler, tcp://host:port; or N workers here.",
    ),
]
Reboot = Annotated[bool, typer.Option("--reboot", help="Restart this machine as often as the study asks for (root).")]
Directory = Annotated[Path, typer.Argument(metavar="DIR", help="The study's directory.")]


@study_app.command("run")
def run_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The study.toml, or the name of a bundled study.")],
    into: Annotated[
        Path | None, typer.Option("--into", metavar="DIR", help="The study's directory (default: NAME.study).")
    ] = None,
    skip_impossible: Annotated[
        bool,
        typer.Option("--skip-impossible", help="Leave out impossible conditions; the report lists them."),
    ] = False,
    quick: Annotated[bool, typer.Option("--quick", help="The study's quick form: its [quick] table.")] = False,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", "-m", parser=minutes_of, metavar="N", help="Time for the runs: as many executions as fit."
        ),
    ] = None,
    cluster: Cluster = None,
    reboot: Reboot = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything and show the plan; run nothing.")
    ] = False,
) -> None:
    """Run a study from its beginning.

    With `--minutes`, a pilot runs first: the smallest number of blocks that can show a difference. It measures how long
    blocks take and how much pairs scatter. Then the changes that are likely to be seen are printed, and whole blocks
    follow where they narrow intervals most.

    Every finished run is committed before the next starts: Ctrl-C, a crash or a power cut lose at most the run in
    progress, and `pagelab study resume` goes on from there.

    A study with `between = "reboot"` restarts the machine between its executions: `--dry-run` shows how
    often, and which services stop meanwhile; nothing happens without `--reboot`.

    **Examples**

        pagelab study init page-size.toml

        pagelab study run page-size.toml

        pagelab study run page-size.toml --into /data/page-size --skip-impossible

        pagelab study run page-size.toml --minutes 10

        pagelab study run nondeterminism --quick

        pagelab study run page-size.toml --cluster tcp://10.0.0.1:8786

        sudo pagelab study run fresh.toml --reboot
    """
    from pagelab.study.control import run_study
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal
    from pagelab.study.spec import read

    _check_cluster(cluster)
    spec = _bundled(spec)
    raw = read(spec)
    directory = into or Path(f"{raw.name}{'-quick' if quick else ''}.study")
    restarts = raw.between == "reboot"
    _check_reboot(reboot, restarts, minutes, cluster)
    if reboot and not dry_run:
        from pagelab.study.reboots import arming
        from pagelab.study.systemd import Systemd

        arming.run(
            spec, directory, local_tools(), Systemd(), for_terminal(), skip_impossible=skip_impossible, quick=quick
        )
        return
    if dry_run or restarts:
        from pagelab.study.prepare import prepare

        _show_plan(
            prepare(
                spec,
                directory,
                local_tools().check,
                skip_impossible=skip_impossible,
                quick=quick,
                minutes=minutes,
                is_here=cluster is None,
            ),
            directory,
        )
    if dry_run:
        return
    finished = run_study(
        spec,
        directory,
        local_tools(),
        progress=for_terminal(),
        skip_impossible=skip_impossible,
        quick=quick,
        minutes=minutes,
        cluster=cluster,
    )
    conclude(finished, directory)


def _check_cluster(cluster: str | None) -> None:
    from pagelab.errors import BadInputError

    if cluster is not None and "://" not in cluster and not (cluster.isascii() and cluster.isdigit() and int(cluster)):
        raise BadInputError(
            f"--cluster {cluster}: neither a scheduler's address nor a number of workers; such as: "
            "--cluster tcp://10.0.0.1:8786, --cluster 2"
        )


def _check_reboot(reboot: bool, asked: bool, minutes: float | None, cluster: str | None) -> None:
    from pagelab.errors import BadInputError

    if reboot and not asked:
        raise BadInputError('--reboot: the study does not restart the machine; write between = "reboot" into its file')
    if asked and (minutes is not None or cluster is not None):
        other = "--minutes" if minutes is not None else "--cluster"
        raise BadInputError(f'{other} and between = "reboot" exclude each other; use executions = N')


def _bundled(spec: Path) -> Path:
    """The installed study of that name, for a plain word that names no file here."""
    names = _bundled_names()
    if not spec.exists() and len(spec.parts) == 1 and not spec.suffix and str(spec) not in names:
        from pagelab.errors import BadInputError
        from pagelab.spelling import meant

        raise BadInputError(
            f"there is no file {spec} here, and no bundled study of that name{meant(str(spec), names)}; bundled: "
            f"{', '.join(names)}; start one of your own with: pagelab study init"
        )
    if spec.exists() or str(spec) not in names:
        return spec
    from importlib.resources import files

    return Path(str(files("pagelab.benchmarks").joinpath(f"{spec}.toml")))


def _bundled_names() -> list[str]:
    from importlib.resources import files

    entries = files("pagelab.benchmarks").iterdir()
    return sorted(entry.name.removesuffix(".toml") for entry in entries if entry.name.endswith(".toml"))


@study_app.command("resume")
def resume_command(
    directory: Directory,
    executions: Annotated[
        int | None,
        typer.Option("--executions", "-n", metavar="N", help="Executions of each condition in all; more than planned."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            "--minutes", "-m", parser=minutes_of, metavar="N", help="Time for further executions: as many as fit."
        ),
    ] = None,
    as_begun: Annotated[
        bool, typer.Option("--as-begun", help="Continue with the original file although it was edited since.")
    ] = False,
    cluster: Cluster = None,
    reboot: Reboot = False,
) -> None:
    """Continue a study that was interrupted, at the run that was in progress, in the same order; or extend it.

    Executions that are added after a report could be read are a further look at the data. Each look has half of the
    error level of the look before, so its intervals are wider.

    **Examples**

        pagelab study resume page-size.study

        pagelab study resume page-size.study --executions 60
    """
    from pagelab.errors import BadInputError
    from pagelab.study.control import resume_study
    from pagelab.study.launching import local_tools
    from pagelab.study.progress import for_terminal

    _check_cluster(cluster)
    if executions is not None and minutes is not None:
        raise BadInputError("--executions and --minutes exclude each other: each decides how many executions there are")
    if reboot:
        from pagelab.study.reboots import arming
        from pagelab.study.systemd import Systemd

        _check_reboot(reboot, arming.asked_by(directory), minutes, cluster)
        arming.resume(directory, local_tools(), Systemd(), for_terminal(), executions=executions, as_begun=as_begun)
        return
    finished = resume_study(
        directory,
        local_tools(),
        progress=for_terminal(),
        executions=executions,
        minutes=minutes,
        as_begun=as_begun,
        cluster=cluster,
    )
    conclude(finished, directory)


@study_app.command("status")
def status_command(
    directory: Directory,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show the progress of a running or dead study, its failures, and the remaining time.

    **Examples**

        pagelab study status page-size.study

        watch -n 5 pagelab study status page-size.study
    """
    from pagelab.study.status import status_of

    status = status_of(directory)
    if as_json:
        import json

        terminal.echo(json.dumps(status.as_data(), indent=2))
    else:
        _show_status(status, directory)


@study_app.command("stop-reboots")
def stop_reboots_command() -> None:
    """Stop the study that restarts this machine: no further boot continues it, and finished runs are kept.

    A run in progress is ended, and repeated when the study is resumed.

    **Examples**

        sudo pagelab study stop-reboots
    """
    from pagelab.study.reboots import arming
    from pagelab.study.resuming import sudo
    from pagelab.study.systemd import Systemd

    directory, running = arming.stop(Systemd())
    if directory is None:
        terminal.echo("no study restarts this machine")
        return
    terminal.echo(f"no further boot goes on with the study in {directory}")
    terminal.echo(f"continue it with: {sudo(f'study resume {quoted(directory)} --reboot')}")
    if running:
        terminal.echo("other services are off; start them with: sudo systemctl reboot")


@study_app.command("init")
def init_command(
    spec: Annotated[Path, typer.Argument(metavar="SPEC", help="The file to write.")] = Path("study.toml"),
    copy_of: Annotated[
        str | None, typer.Option("--from", metavar="NAME", help="Start from the bundled study of that name.")
    ] = None,
) -> None:
    """Write a commented study.toml to start from.

    **Examples**

        pagelab study init page-size.toml

        pagelab study init mine.toml --from nondeterminism
    """
    from importlib.resources import files

    from pagelab.errors import BadInputError, cannot_write

    source = files("pagelab.study").joinpath("template.toml")
    if copy_of is not None:
        source = files("pagelab.benchmarks").joinpath(f"{copy_of}.toml")
        if not source.is_file():
            raise BadInputError(f"--from {copy_of}: there is no such study; allowed: {', '.join(_bundled_names())}")
    text = source.read_text(encoding="utf-8")
    try:
        with spec.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise BadInputError(f"{spec} exists; name another file: pagelab study init OTHER.toml") from None
    except OSError as error:
        begun = error.filename is None  # the file was made, and the disk is full
        if begun:
            spec.unlink(missing_ok=True)
        raise cannot_write(spec, error) from None
    terminal.echo(f"wrote {spec}; change it, then: pagelab study run {quoted(spec)}")


def conclude(finished: Finished, directory: Path) -> None:
    """The last words of a session. Raises RunFailedError when runs failed (exit code 1)."""
    from pagelab.errors import RunFailedError

    stopped = ""
    if finished.target_missed:
        stopped = f", to the maximum of {finished.stopped_at} blocks: the precision asked for was not reached"
    elif finished.stopped_at:
        stopped = f", stopped by its precision after {finished.stopped_at} blocks"
    done = "1 run is" if finished.runs == 1 else f"{finished.runs} runs are"
    terminal.say(f"{done} done{stopped}; see them with: pagelab report {quoted(directory)}\n")
    _answer(directory)
    if finished.failed:
        raise RunFailedError(
            f"{finished.failed} of {finished.runs} runs failed (they are kept); "
            f"see: pagelab study status {quoted(directory)}"
        )


_SOON_BYTES = 32 << 20
"""Records of which the analysis takes seconds; that of more is left to the report."""


def _answer(directory: Path) -> None:
    """Prints the verdict and the next command, as the report has them. It prints nothing where memory or threads are
    limited: its libraries may then hang, and only the report is watched for that.
    """
    from pagelab.cli import limits

    if limits.tight():
        return
    from pagelab.analysis import NothingToAnalyseError, analyse, load
    from pagelab.analysis.following import following_of
    from pagelab.study.store import Store

    with Store.open(directory, write=False) as store:
        if store.record_bytes() > _SOON_BYTES:
            return
        data = load(store)
    try:
        found = analyse(data)
    except NothingToAnalyseError:
        return
    following = following_of(found, data)
    # One sentence on all programs hides more than one on each: what it must not be read without stands beside it.
    but = f"but: {found.caveats[0]}\n" if found.over_set is not None and found.caveats else ""
    terminal.say(f"{found.headline}\n{but}next: {following.command}\n      ({following.why})\n")


def _show_plan(prepared: object, directory: Path) -> None:
    from pagelab.analysis.wording import count
    from pagelab.study.prepare import Prepared
    from pagelab.study.progress import as_note

    assert isinstance(prepared, Prepared)
    plan = prepared.plan
    active = plan.active()
    blocks = f"{'at most ' if plan.precision else ''}{count(plan.executions, 'execution')}"
    if plan.minutes is not None:
        blocks = f"as many executions as fit into {plan.minutes:g} min"
    warmups = count(plan.warmups, "warm-up")
    terminal.echo(f"{plan.name}: {count(len(active), 'condition')}, {blocks} and {warmups} each, in {directory}")
    if plan.answer == "set":
        from pagelab.study.answering import QUANTITIES, most_programs, programs_by_policy

        planned = len(QUANTITIES) * len(programs_by_policy(plan))
        terminal.echo(f"one answer over {most_programs(plan)} programs: {planned} comparisons (time and spread)")
    for condition in plan.conditions:
        words = " ".join(condition.request.argv)
        terminal.echo(f"  {condition.name}{'  (baseline)' if condition.baseline else ''}: {words}")
    for note in prepared.notes:
        terminal.echo(note)
    if plan.reboots is not None:
        from pagelab.study.reboots.arming import describe
        from pagelab.study.systemd import Systemd

        terminal.echo(describe(prepared, Systemd()))
    for warning in prepared.warnings:
        terminal.echo(as_note(warning))


_STATES = {
    "complete": "complete",
    "stopped": "complete (stopped by its precision)",
    "imported": "imported",
    "running": "running",
    "next-boot": "goes on at the next boot",
    "interrupted": "not running: it was interrupted",
    "killed": "not running: it was killed, or its disk was full",
    "running-or-killed": "running or killed: its lock is another user's",
    "error": "not running: it ended with an error",
    "not-started": "not running: nothing has started",
}


def _median_text(condition: ConditionStatus, *, names_metric: bool) -> str:
    from pagelab.analysis.wording import digits, size

    if condition.median is None:
        return ""
    if condition.metric.endswith("_bytes"):
        text = size(condition.median)
    else:
        text = digits(condition.median) + (" s" if condition.metric.endswith("_s") else "")
    return f"{text} {condition.metric}" if names_metric else text


def _show_status(status: Status, directory: Path) -> None:
    from rich.table import Table
    from rich.text import Text

    from pagelab.study.progress import shown_duration

    console = terminal.console(highlight=False)
    console.print(Text(status.name, style="bold") + Text(f": {_STATES.get(status.state, status.state)}"))
    if status.holder is not None:
        console.print(f"process {status.holder.pid} on {status.holder.host}, since {status.holder.since}")
    if status.boots is not None:
        console.print(f"{status.boots} boots so far")
    if status.boots_stopped:
        console.print(f"stopped: {status.boots_stopped}")
    left = "" if not status.left_s or status.state == "stopped" else f", about {shown_duration(status.left_s)} left"
    console.print(f"{status.done} of {status.total} runs done{left}")
    counts = [f"{count} {name}" for name, count in status.statuses.items() if count]
    counts += [f"{status.short_placed} short-placed"] if status.short_placed else []
    counts += [f"{status.repeated} interrupted and repeated"] if status.repeated else []
    if counts:
        console.print("runs: " + ", ".join(counts))
    if status.warnings:
        console.print("warnings: " + ", ".join(f"{count} {kind}" for kind, count in status.warnings.items()))
    metrics = {condition.metric for condition in status.conditions}
    heading = " ".join(["median", *(metrics if len(metrics) == 1 else ())])
    table = Table("condition", "done", "failed", heading, box=None, pad_edge=False)
    for condition in status.conditions:
        median = _median_text(condition, names_metric=len(metrics) > 1)
        done = f"left out: {condition.left_out}" if condition.left_out else f"{condition.done}/{condition.planned}"
        table.add_row(condition.name, done, str(condition.failed or ""), median)
    console.print(table)
    if status.state in ("interrupted", "killed", "error", "not-started"):
        console.print(f"continue with: {status.resume}")
    if status.state == "running-or-killed":
        console.print(f"which of both, the study's owner sees with: pagelab study status {quoted(directory)}")
