"""``pagelab map``: which pages back a process, how big they are, and where they lie."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab.errors import BadInputError, PagelabError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagelab.placement import AddressMap
    from pagelab.placement.trace import Moment
    from pagelab.policy import Flags


def map_command(
    target: Annotated[
        list[str], typer.Argument(metavar="PID | -- CMD...", help="A process, or a command to run and map.")
    ],
    at: Annotated[
        str, typer.Option("--at", metavar="exit|SECONDS", help="When to map a command; SECONDS ends it afterwards.")
    ] = "exit",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw it: a name in .svg, .png or .html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the map as JSON (pagelab.map/1).")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON to a file, beside the table.")
    ] = None,
    frames: Annotated[
        bool, typer.Option("--frames", help="In the JSON, list every piece of physical memory (root).")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every region in the table.")] = False,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Run the command under this policy.")
    ] = None,
    pages: Annotated[
        list[str] | None, typer.Option("--pages", metavar="[MEMORY=]SIZE", help="Page size: 2M, heap=0-64M:2M …")
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option("--fetch", metavar="[MEMORY=]WHEN", help="demand, prefault or willneed.")
    ] = None,
    via: Annotated[str | None, typer.Option("--via", metavar="thp|hugetlb", help="How huge pages are made.")] = None,
    layout: Annotated[
        Path | None, typer.Option("--layout", metavar="CSV", help="Page sizes from a Mosalloc layout.")
    ] = None,
    stdout: Annotated[
        str, typer.Option("--stdout", metavar="FILE", help="The command's output: inherit, null, or a file.")
    ] = "inherit",
) -> None:
    """Page sizes, residency and, as root, frame numbers of a process, by region.

    A command is mapped just before it gives its memory back; with --policy and the like it runs under that policy.
    Sizes between the base page and 2M, and frame numbers, are shown to root only.

    **Examples**

        pagelab map 1234

        pagelab map --picture redis.svg $(pidof redis-server)

        pagelab map -- sort big.txt

        pagelab map --at 5 --json --stdout null -- ./service > map.json

        pagelab map --pages heap=0-64M:2M --picture heap.png -- ./solver
    """
    pid, after_s = _pid(target), _seconds(at)
    governed = policy is not None or pages or fetch or via or layout is not None
    if governed and pid is not None:
        raise BadInputError(f"a policy is for a command: process {pid} runs already")
    if picture is not None:
        _check_suffix(picture)
    if pid is not None:
        from pagelab import placement

        found, ended = placement.collect(pid, frames=frames), 0
    elif governed:
        from pagelab.policy import Flags

        flags = Flags(pages=pages or (), fetch=fetch or (), via=via, layout=layout)
        found, ended = _run_governed(target, after_s, frames, stdout, flags, policy)
    else:
        found, ended = _run(target, after_s, frames, stdout)
    _show(found, as_json=as_json, output=output, everything=everything)
    if picture is not None:
        from pagelab.placement.picture import write

        write(found, picture)
        typer.echo(f"picture: {picture}", err=True)
    if ended:
        how = f"signal {-ended}" if ended < 0 else f"exit code {ended}"
        typer.echo(f"pagelab: the program ended with {how}", err=True)
        raise typer.Exit(1)


def _pid(target: list[str]) -> int | None:
    """The process that is meant, or ``None`` for a command. A lone number is a process."""
    if len(target) == 1 and target[0].lstrip("-").isdigit():
        pid = int(target[0])
        if pid <= 0:
            raise BadInputError(f"{target[0]} is not the number of a process; processes are listed by: ps -e")
        return pid
    return None


def _seconds(at: str) -> float | None:
    if at == "exit":
        return None
    try:
        seconds = float(at)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise BadInputError(f"--at {at}: not a moment; allowed: exit, or a number of seconds")
    return seconds


def _check_suffix(picture: Path) -> None:
    """Before anything runs: a long run must not end with a picture that cannot be drawn."""
    from pagelab.placement.model import PICTURE_FORMATS

    if picture.suffix.lower().removeprefix(".") not in PICTURE_FORMATS:
        raise BadInputError(f"--picture {picture}: unknown kind of picture; allowed: a name in .svg, .png or .html")
    if not picture.absolute().parent.is_dir():
        raise BadInputError(f"--picture {picture}: there is no directory {picture.absolute().parent}")


def _looker(frames: bool) -> Callable[[int, Moment], AddressMap | PagelabError]:
    """Errors are values here, and raised once the program has been let go."""
    from pagelab import placement

    def look(pid: int, moment: Moment) -> AddressMap | PagelabError:
        try:
            return placement.collect(pid, frames=frames, moment=moment)
        except PagelabError as error:
            return error

    return look


def _run(argv: list[str], after_s: float | None, frames: bool, stdout: str) -> tuple[AddressMap, int]:
    from pagelab.placement import trace

    traced = trace.run(argv, _looker(frames), after_s, stdout)
    if isinstance(traced.value, PagelabError):
        raise traced.value
    return traced.value, 0 if traced.moment == "now" else traced.exit_code


def _run_governed(
    argv: list[str], after_s: float | None, frames: bool, stdout: str, flags: Flags, base: Path | None
) -> tuple[AddressMap, int]:
    from pagelab import machine, policy
    from pagelab.placement import governed
    from pagelab.runner import RunRequest

    described = machine.describe()
    asked = policy.from_flags(flags, described, base)
    policy.check_runnable(asked, described)
    request = RunRequest(
        argv=argv,
        policy_toml=asked.toml,
        policy_path=None if base is None else str(base),
        stdin="inherit",
        stdout=stdout,
    )
    traced, record = governed.run_and_look(request, _looker(frames), after_s)
    if isinstance(traced.value, PagelabError):
        raise traced.value
    found = traced.value.model_copy(
        update={"policy": asked.name, "warnings": [*traced.value.warnings, *record.warnings]}
    )
    return found, 0 if traced.moment == "now" else traced.exit_code


def _show(found: AddressMap, *, as_json: bool, output: Path | None, everything: bool) -> None:
    text = found.model_dump_json(by_alias=True)
    if output is not None:
        try:
            output.write_text(text + "\n")
        except OSError as error:
            raise PagelabError(f"cannot write {output}: {error.strerror} (errno {error.errno})") from error
    if as_json:
        typer.echo(text)
        return
    from rich.console import Console

    from pagelab.placement.table import summary, table

    # A file or a pipe has no width of its own: there, nothing is left out.
    console = Console() if sys.stdout.isatty() or "COLUMNS" in os.environ else Console(width=180)
    console.print(summary(found), highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(table(found, everything=everything, width=console.width))
    for warning in found.warnings:
        console.print(f"\n{warning.severity}: {warning.message}", highlight=False, markup=False)
    if not found.folios:
        console.print("\nPage sizes between 4K and 2M and frame numbers need root: sudo pagelab map …", style="dim")
