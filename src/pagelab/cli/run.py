"""``pagelab run``: one program under one policy, measured, with a summary of request and placement."""

from __future__ import annotations

import secrets
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from pagelab import terminal
from pagelab.cli.options import MEASURE, OUTPUT, WHAT, MeasureRegex
from pagelab.cli.run_settings import NOTHING, Typed, asked, once
from pagelab.contract.strategies import STRATEGIES
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.record import Outcome, Record

_POLICY = "The policy"


@once
def run_command(
    argv: Annotated[list[str], typer.Argument(metavar="[--] CMD...", help="The program and its arguments.")],
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="A policy in TOML; flags override it.", rich_help_panel=_POLICY),
    ] = None,
    pages: Annotated[
        list[str] | None,
        typer.Option(
            "--pages", metavar="SIZES", help="2M, heap=2M, heap=0-64M:2M,1G-2G:1G ...", rich_help_panel=_POLICY
        ),
    ] = None,
    fetch: Annotated[
        list[str] | None,
        typer.Option(
            "--fetch", metavar="WHEN", help="demand, prefault, willneed; file=willneed ...", rich_help_panel=_POLICY
        ),
    ] = None,
    frames: Annotated[
        list[str] | None,
        typer.Option(
            "--frames",
            metavar="WHERE",
            help=f"Where pages lie: {', '.join(one.example for one in STRATEGIES)}, with "
            "parameters (colors=64,pin=true); or MEMORY=WHERE. Needs root. Repeatable.",
            rich_help_panel=_POLICY,
        ),
    ] = None,
    via: Annotated[
        str | None,
        typer.Option("--via", metavar="thp|hugetlb", help="How tiles of 2M are made.", rich_help_panel=_POLICY),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            "--backend",
            metavar="library|kernel|auto",
            help="What places frames: the library in the program, or a kernel with page placement.",
            rich_help_panel=_POLICY,
        ),
    ] = None,
    layout: Annotated[
        Path | None,
        typer.Option("--layout", metavar="FILE", help="A Mosalloc layout (CSV).", rich_help_panel=_POLICY),
    ] = None,
    preload: Annotated[
        bool,
        typer.Option(
            "--preload/--no-preload",
            help="Without the library nothing is governed, and placement is not measured.",
            rich_help_panel=_POLICY,
        ),
    ] = True,
    settings: Typed = NOTHING,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Set a variable.", rich_help_panel=WHAT),
    ] = None,
    unset: Annotated[
        list[str] | None, typer.Option("--unset", metavar="NAME", help="Remove a variable.", rich_help_panel=WHAT)
    ] = None,
    clear_env: Annotated[
        bool, typer.Option("--clear-env", help="Start from an empty environment.", rich_help_panel=WHAT)
    ] = False,
    cwd: Annotated[
        Path | None, typer.Option("--cwd", metavar="DIR", help="Working directory.", rich_help_panel=WHAT)
    ] = None,
    stdin: Annotated[
        str, typer.Option("--stdin", metavar="FILE", help="inherit, null, or a file.", rich_help_panel=WHAT)
    ] = "inherit",
    stdout: Annotated[
        str, typer.Option("--stdout", metavar="FILE", help="inherit, null, or a file.", rich_help_panel=WHAT)
    ] = "inherit",
    stderr: Annotated[
        str, typer.Option("--stderr", metavar="FILE", help="inherit, null, or a file.", rich_help_panel=WHAT)
    ] = "inherit",
    run_dir: Annotated[
        Path | None,
        typer.Option("--run-dir", metavar="DIR", help="Parent of run directories.", rich_help_panel=WHAT),
    ] = None,
    events: Annotated[
        list[str] | None,
        typer.Option(
            "--events",
            "-e",
            metavar="EVENTS",
            help="Sets (tlb, cache, faults), names (cycles), raw codes (r0F45), libpfm4 names.",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    per_process: Annotated[
        bool,
        typer.Option("--per-process/--totals-only", help="Counters by process too.", rich_help_panel=MEASURE),
    ] = True,
    measure_regex: MeasureRegex = None,
    flush: Annotated[
        list[str] | None,
        typer.Option(
            "--flush", metavar="FILE|all", help="Drop from the page cache before the run.", rich_help_panel=MEASURE
        ),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the record as JSON instead of a summary.", rich_help_panel=OUTPUT)
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the record to a file.", rich_help_panel=OUTPUT),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No summary.", rich_help_panel=OUTPUT)] = False,
    propagate: Annotated[
        bool,
        typer.Option("--propagate", help="Exit with the program's own code, or 128 + signal.", rich_help_panel=OUTPUT),
    ] = False,
) -> None:
    """Run a program under a policy, and show its times and its page placement.

    The summary goes to standard error, so that the program's output can be piped on. Without policy flags everything
    is left to the kernel, and measured all the same.

    **Examples**

        pagelab run -- sort big.txt

        pagelab run --pages 2M -e tlb -- ./service --once

        pagelab run --pages 'heap=0-64M:2M' --cpu 1 --aslr off --json -- python3 job.py > record.json

        pagelab run --fetch file=demand --flush data.bin -- pagelab-workload mmap-scan data.bin

        sudo pagelab run --frames bin-hopping:cache=1M,8 --backend kernel -- ./static-or-go-program

        pagelab run --measure-regex 'took (?P<value>[0-9.]+) (?P<unit>ms)' -- ./bench
    """
    from pagelab import runner

    mode, files = _flush(flush or [])
    request = runner.RunRequest(
        argv=argv,
        policy_toml=_policy(policy, pages, fetch, frames, via, backend, layout),
        policy_path=None if policy is None else str(policy),
        preload="auto" if preload else "never",
        env=_variables(env or []),
        unset=unset or [],
        clear_env=clear_env,
        cwd=None if cwd is None else str(cwd),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        run_dir_root=None if run_dir is None else str(run_dir),
        events=events or [],
        per_process_counters=per_process,
        measure_regex=measure_regex,
        flush=mode,
        flush_files=files,
        tell_limits=not quiet,
        **asked(settings),
    )
    _check_output(output)
    record = runner.run(request)
    _show(record, as_json=json_, output=output, quiet=quiet)
    _exit(record.outcome, propagate=propagate)


def _policy(
    policy: Path | None,
    pages: list[str] | None,
    fetch: list[str] | None,
    frames: list[str] | None,
    via: str | None,
    backend: str | None,
    layout: Path | None,
) -> str:
    """The policy's text; checked against this machine here, so that a bad flag is named as it was typed."""
    if policy is None and not (pages or fetch or frames or via or backend or layout):
        return 'name = "kernel"\n'
    from pagelab import machine
    from pagelab import policy as policies

    described = machine.describe()
    flags = policies.Flags(
        pages=pages or [], fetch=fetch or [], frames=frames or [], via=via, backend=backend, layout=layout
    )
    found = policies.from_flags(flags, described, policy)
    policies.check_runnable(found, described)
    return found.toml


def _variables(texts: list[str]) -> dict[str, str]:
    bad = next((text for text in texts if text.find("=") < 1), None)
    if bad is not None:
        raise BadInputError(f"--env {bad}: not of the form NAME=VALUE")
    names = [text.split("=", 1)[0] for text in texts]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise BadInputError(f"--env {twice}=… is given {names.count(twice)} times, and only one value can count")
    return dict(text.split("=", 1) for text in texts)


def _flush(targets: list[str]) -> tuple[Literal["none", "files", "all"], list[str]]:
    if not targets:
        return "none", []
    if "all" in targets:
        if len(targets) > 1:
            raise BadInputError("--flush all drops every file already; to drop a file named all: --flush ./all")
        return "all", []
    return "files", targets


def _check_output(output: Path | None) -> None:
    """Before anything runs: a long run must not end with a record that cannot be written."""
    if output is not None and not output.absolute().parent.is_dir():
        raise BadInputError(f"--output {output}: there is no directory {output.absolute().parent}")


def _show(record: Record, *, as_json: bool, output: Path | None, quiet: bool) -> None:
    if output is not None:
        # A name that nobody can have put a link in the place of.
        temporary = output.with_name(f".{secrets.token_hex(8)}.tmp")
        with temporary.open("x") as file:
            file.write(record.model_dump_json(by_alias=True, indent=1) + "\n")
        temporary.replace(output)
    if as_json:
        terminal.echo(record.model_dump_json(by_alias=True, indent=1))
    elif not quiet:
        from pagelab.cli.summary import show

        show(record, terminal.console(stderr=True))


def _exit(outcome: Outcome, *, propagate: bool) -> None:
    if outcome.status == "ok":
        return
    if propagate and outcome.exit_code is not None:
        raise typer.Exit(outcome.exit_code)
    if propagate and outcome.signal is not None:
        raise typer.Exit(128 + outcome.signal)
    interrupted = outcome.message is not None and outcome.message.startswith("interrupted by")
    # In the foreground of a terminal Ctrl-C reaches the program alone.
    if interrupted or outcome.signal == signal.SIGINT:
        raise typer.Exit(130)
    raise typer.Exit(1)
