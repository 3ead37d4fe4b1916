"""``pagelab run``: one program under one policy, measured, with a summary of request and placement."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pagelab.cli.options import MEASURE, OUTPUT, WHAT, MeasureRegex
from pagelab.cli.run_settings import once
from pagelab.cli.settings import NOTHING, Typed
from pagelab.contract.strategies import STRATEGIES

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
    from pagelab.cli.run_once import Asked, perform

    code = perform(
        Asked(
            argv=argv,
            policy=policy,
            pages=pages,
            fetch=fetch,
            frames=frames,
            via=via,
            backend=backend,
            layout=layout,
            preload=preload,
            settings=settings,
            env=env,
            unset=unset,
            clear_env=clear_env,
            cwd=cwd,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            run_dir=run_dir,
            events=events,
            per_process=per_process,
            measure_regex=measure_regex,
            flush=flush,
            json_=json_,
            output=output,
            quiet=quiet,
            propagate=propagate,
        )
    )
    if code:
        raise typer.Exit(code)
