"""``pagelab stat``: placed pages of a running process, by strategy and colour."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.times import seconds as seconds_of
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console

    from pagelab.placement.live import ProcessStat, Stat


def stat_command(
    pid: Annotated[
        int | None, typer.Argument(metavar="PID", help="A process that runs under a frame policy of the library.")
    ] = None,
    system: Annotated[
        bool, typer.Option("--system", help="Pages placed by the kernel since boot: /proc/page_color, all programs.")
    ] = False,
    tree: Annotated[bool, typer.Option("--tree", help="Also the processes below it.")] = False,
    by_colour: Annotated[bool, typer.Option("--by-colour", help="One row per colour.")] = False,
    watch: Annotated[
        float | None,
        typer.Option("--watch", parser=seconds_of, metavar="SECONDS", help="Repeat until the process ends or Ctrl-C."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON (pagelab.stat/1), with --watch one line a time.")
    ] = False,
) -> None:
    """Show the frame placement of a running process: requests, placed pages, fallbacks, refills, waits.

    Counters are read from memory that the process shares with pagelab, at no cost to the process.

    **Examples**

        pagelab stat 1234

        pagelab stat --tree --watch 1 $(pidof pagelab-launch | cut -d' ' -f1)

        pagelab stat --by-colour 1234

        pagelab stat --system

        pagelab stat --json --watch 0.5 1234 > counters.jsonl
    """
    if watch is not None and not 0.01 <= watch <= 86400:
        raise BadInputError(f"--watch {watch:g}: allowed: 0.01 to 86400 seconds")
    if system or pid is None:
        if pid is not None or tree or by_colour or not system:
            raise BadInputError("pagelab stat shows a process (PID), or with --system what the kernel placed")
        _system(watch, as_json=as_json)
        return
    if pid <= 0:
        raise BadInputError(f"{pid} is not the number of a process; processes are listed by: ps -e")
    from pagelab.placement import live

    if watch is None:
        _show(live.collect(pid, tree=tree), as_json=as_json, by_colour=by_colour)
        return
    _watch(pid, watch, tree=tree, as_json=as_json, by_colour=by_colour)


def _system(watch: float | None, *, as_json: bool) -> None:
    from pagelab.errors import MachineError
    from pagelab.machine import page_color
    from pagelab.machine.sysfs import Tree

    while True:
        try:
            counts = page_color.read(Tree.from_environment())
        except OSError as error:
            raise MachineError(f"cannot read {page_color.PATH}: {error.strerror}; run: pagelab doctor") from error
        if counts is None:
            raise MachineError(
                f"this kernel has no page placement: there is no {page_color.PATH}; build and boot such a kernel as "
                "kernel/README.md says, or look at a process under the library: pagelab stat PID"
            )
        _show_system(counts, as_json=as_json)
        if watch is None:
            return
        time.sleep(watch)


def _show_system(counts: dict[str, dict[str, int]], *, as_json: bool) -> None:
    if as_json:
        import json

        terminal.echo(json.dumps({"strategies": counts}))
        return
    from pagelab.machine import page_color
    from pagelab.placement.stat_table import system

    counts = page_color.placing(counts)
    console = terminal.console() if sys.stdout.isatty() or "COLUMNS" in os.environ else terminal.console(width=180)
    if not counts:
        console.print("no strategy is loaded; run: sudo modprobe placement_page_coloring", highlight=False)
        return
    console.print(system(counts))


def _watch(pid: int, seconds: float, *, tree: bool, as_json: bool, by_colour: bool) -> None:
    """The first read raises errors; later, the end of the process ends the watch."""
    from pagelab.placement import live
    from pagelab.placement.errors import NoSuchProcessError, ProcessEndedError

    found = live.collect(pid, tree=tree)
    while True:
        if not as_json and sys.stdout.isatty():
            sys.stdout.write("\x1b[H\x1b[2J")
        _show(found, as_json=as_json, by_colour=by_colour)
        sys.stdout.flush()
        time.sleep(seconds)
        try:
            found = live.collect(pid, tree=tree)
        except (NoSuchProcessError, ProcessEndedError):
            terminal.say(f"process {pid} has ended\n")
            return
        except live.NotGovernedError as error:
            # exec: the new image has not started its own, or leaves frames to the kernel
            terminal.say(f"{error}\n")
            return


def _show(found: Stat, *, as_json: bool, by_colour: bool) -> None:
    if as_json:
        terminal.echo(found.model_dump_json(by_alias=True))
        return

    # A file or a pipe has no width of its own: there, nothing is left out.
    console = terminal.console() if sys.stdout.isatty() or "COLUMNS" in os.environ else terminal.console(width=180)
    for process in found.processes:
        _process(console, process, by_colour=by_colour)


def _process(console: Console, process: ProcessStat, *, by_colour: bool) -> None:
    from pagelab.placement.stat_table import colours, engine, strategies

    console.print(f"process {process.pid} ({process.executable})", highlight=False, markup=False, style="bold")
    for line in engine(process):
        console.print(f"  {line}", highlight=False, markup=False, soft_wrap=True)
    if process.strategies:
        console.print(strategies(process))
    for strategy in process.strategies if by_colour else ():
        console.print(f"\nstrategy {strategy.number} ({strategy.kind}) by colour", highlight=False)
        console.print(colours(strategy))
    console.print()
