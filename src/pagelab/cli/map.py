"""``pagelab map``: the pages that back a process, their sizes and their frames."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from pagelab import terminal, whole_file
from pagelab.cli.options import on_off
from pagelab.cli.quoted import refuse_quoted
from pagelab.cli.run_once import check_output
from pagelab.errors import BadInputError, MachineError, PagelabError, cannot_write

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

    from pagelab.placement import AddressMap
    from pagelab.placement.colours import ColourFunction
    from pagelab.placement.model import Colouring
    from pagelab.placement.ptrace_hold import Moment, Traced
    from pagelab.policy import Policy
    from pagelab.runner import RunRequest


def map_command(
    target: Annotated[
        list[str], typer.Argument(metavar="PID | -- CMD...", help="A process, or a command to run and map.")
    ],
    at: Annotated[
        str,
        typer.Option(
            "--at",
            metavar="peak|exit|SECONDS",
            help="When to map a command: with most memory, at its end, or after a time (which then ends it).",
        ),
    ] = "peak",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE", help="Draw it: a name in .svg, .png or .html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the map as JSON (pagelab.map/1).")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the JSON to a file, beside the table.")
    ] = None,
    draw: Annotated[
        str | None,
        typer.Option("--draw", metavar="sizes|colours", help="Contents of the picture; default: colours if requested."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FILE", help="Save frames and colours, for a policy to replay (root)."),
    ] = None,
    colors: Annotated[
        int | None, typer.Option("--colors", metavar="N", help="Count pages by frame number modulo N (root).")
    ] = None,
    cache: Annotated[
        str | None,
        typer.Option("--cache", metavar="SIZE,WAYS", help="… by the colours of such a cache: 1M,8. Default: the L2."),
    ] = None,
    masks: Annotated[
        str | None, typer.Option("--masks", metavar="MASK,...", help="… by parities of frame-number bits: 0x21,0x42.")
    ] = None,
    pieces: Annotated[
        bool, typer.Option("--pieces", help="In the JSON, list every piece of physical memory (root).")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="Show every region in the table.")] = False,
    policy: Annotated[
        Path | None, typer.Option("--policy", metavar="FILE", help="Run the command under this policy.")
    ] = None,
    pages: Annotated[
        list[str] | None, typer.Option("--pages", metavar="[MEMORY=]SIZE", help="Page size: 2M, heap=0-64M:2M …")
    ] = None,
    frames: Annotated[
        list[str] | None, typer.Option("--frames", metavar="[MEMORY=]WHERE", help="page-coloring, heap=bin-hopping …")
    ] = None,
    fetch: Annotated[
        list[str] | None, typer.Option("--fetch", metavar="[MEMORY=]WHEN", help="demand, prefault or willneed.")
    ] = None,
    via: Annotated[str | None, typer.Option("--via", metavar="thp|hugetlb", help="How huge pages are made.")] = None,
    layout: Annotated[
        Path | None, typer.Option("--layout", metavar="CSV", help="Page sizes from a Mosalloc layout.")
    ] = None,
    aslr: Annotated[
        str | None,
        typer.Option("--aslr", metavar="on|off", help="Randomise the command's addresses, or not (to replay them)."),
    ] = None,
    stdout: Annotated[
        str, typer.Option("--stdout", metavar="FILE", help="The command's output: inherit, null, or a file.")
    ] = "inherit",
) -> None:
    """Page sizes, residency and, as root, frame numbers and cache colours of a process, by region.

    A command is mapped when it has most memory, or at its end if it then has as much; with --policy and similar options
    it runs under that policy.
    Sizes between the base page and 2M, frame numbers and colours are shown to root only.

    **Examples**

        pagelab map 1234

        pagelab map --picture redis.svg $(pidof redis-server)

        pagelab map -- sort big.txt

        pagelab map --at 5 --json --stdout null -- ./service > map.json

        pagelab map --pages heap=0-64M:2M --picture heap.png -- ./solver

        sudo pagelab map --frames page-coloring --colors 64 --picture colours.png -- ./solver

        sudo pagelab map --frames bin-hopping --aslr off --save bins.json -- ./solver
    """
    pid, when = _pid(target), _when(at)
    if pid is None:
        refuse_quoted(target, "pagelab map")
    flags = (pages, fetch, frames, via, layout)
    governed = policy is not None or any(flags)
    randomised = on_off(aslr)
    if pid is not None and (governed or aslr is not None):
        what = "a policy" if governed else "--aslr"
        raise BadInputError(f"{what} applies only to a command: process {pid} runs already")
    check_output(output)
    drawing = _drawing(draw, picture, colours_asked=bool(colors or cache or masks or frames))
    if save is not None:
        from pagelab.placement import framemap

        framemap.check_target(save)
    _check_rights(
        [("--save", save is not None), ("--picture of colours", picture is not None and drawing == "colours")]
    )
    chosen = _colouring(colors, cache, masks)
    if governed:
        asked, chosen = _policy(flags, policy, chosen)
        request = _request(target, stdout, asked, randomised)
        found, ended = _run_governed(request, asked[0].name, when, _mapper(pieces or save is not None, chosen))
    elif randomised is not None:
        request = _request(target, stdout, None, randomised)
        found, ended = _run_governed(request, None, when, _mapper(pieces or save is not None, chosen))
    elif pid is not None:
        from pagelab import placement

        found, ended = placement.collect(pid, frames=pieces or save is not None, colouring=chosen), 0
    else:
        found, ended = _run(target, when, stdout, _mapper(pieces or save is not None, chosen))
    if save is not None and chosen is not None:
        terminal.echo(f"saved: {save} ({framemap.save(found, chosen, save):,} pages)", err=True)
    _show(found if pieces else _without_pieces(found), as_json=as_json, output=output, everything=everything)
    if picture is not None:
        _draw(found, picture, drawing)
    if ended:
        how = f"signal {-ended}" if ended < 0 else f"exit code {ended}"
        terminal.echo(f"pagelab: the program ended with {how}", err=True)
        raise typer.Exit(1)


def _check_rights(wanting: list[tuple[str, bool]]) -> None:
    """Refuses options that need root, before anything runs: a long run without frame numbers would yield nothing."""
    asked = [name for name, wanted in wanting if wanted]
    if asked and os.geteuid() != 0:
        raise MachineError(f"{asked[0]} needs frame numbers, which only root sees; run: sudo pagelab map …")


def _colouring(colors: int | None, cache: str | None, masks: str | None) -> ColourFunction | None:
    """The colouring that the flags name, else the machine's; ``None`` if there is neither."""
    from pagelab import machine
    from pagelab.placement import colours

    described = machine.describe()
    return colours.from_flags(colors, cache, masks, described["base_page_bytes"]) or colours.of_machine(described)


def _drawing(draw: str | None, picture: Path | None, *, colours_asked: bool) -> str:
    if draw not in (None, "sizes", "colours"):
        raise BadInputError(f"--draw {draw}: allowed: sizes, colours")
    if picture is None and draw is not None:
        raise BadInputError(f"--draw {draw} sets the contents of a picture; name its file: --picture FILE")
    if picture is not None:
        _check_suffix(picture)
    return draw or ("colours" if colours_asked else "sizes")


def _draw(found: AddressMap, path: Path, what: str) -> None:
    if what == "colours":
        from pagelab.placement.colour_picture import write as write_colours

        write_colours(found, path)
    else:
        from pagelab.placement.picture import write

        write(found, path)
    terminal.echo(f"picture: {path}", err=True)


def _without_pieces(found: AddressMap) -> AddressMap:
    """The map without its pieces, if these were collected only for ``--save``."""
    regions = [region.model_copy(update={"frame_runs": None}) for region in found.regions]
    return found.model_copy(update={"regions": regions})


def _pid(target: list[str]) -> int | None:
    """The pid if the target is a single number; ``None`` if it is a command."""
    if len(target) > 1 and target[0].isdigit() and shutil.which(target[0]) is None:
        if not target[1].startswith("-"):
            raise BadInputError(f"{shlex.join(target)}: only one process is mapped at a time; give one number")
        turned = shlex.join(["pagelab", "map", *target[1:], target[0]])
        raise BadInputError(f"options stand before the number of a process; run: {turned}")
    if len(target) == 1 and target[0].lstrip("-").isdigit():
        pid = int(target[0])
        if pid <= 0:
            raise BadInputError(f"{target[0]} is not the number of a process; processes are listed by: ps -e")
        return pid
    return None


class _When(NamedTuple):
    """When a command is mapped: after a time, or at its end; with ``peaks`` also earlier, whenever its memory grew."""

    after_s: float | None = None
    peaks: bool = False


def _when(at: str) -> _When:
    if at in ("peak", "exit"):
        return _When(peaks=at == "peak")
    try:
        seconds = float(at)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 1e6:
        raise BadInputError(f"--at {at}: not a moment; allowed: peak, exit, or a number of seconds")
    return _When(seconds)


def _check_suffix(picture: Path) -> None:
    """Refuses an unknown suffix before anything runs: a long run must not end with a picture that cannot be drawn."""
    from pagelab.charts import PICTURE_FORMATS

    if picture.suffix.lower().removeprefix(".") not in PICTURE_FORMATS:
        raise BadInputError(f"--picture {picture}: unknown kind of picture; allowed: a name in .svg, .png or .html")
    check_output(picture, "--picture")


def _mapper(frames: bool, colouring: ColourFunction | None) -> Callable[[int, Moment], AddressMap | PagelabError]:
    """A function that maps the held process. It returns errors, which are raised after the process is released."""
    from pagelab import placement

    def look(pid: int, moment: Moment) -> AddressMap | PagelabError:
        try:
            return placement.collect(pid, frames=frames, colouring=colouring, moment=moment)
        except PagelabError as error:
            return error

    return look


def _run(
    argv: list[str], when: _When, stdout: str, look: Callable[[int, Moment], AddressMap | PagelabError]
) -> tuple[AddressMap, int]:
    from pagelab.placement import ptrace_hold

    return _seen(ptrace_hold.run(argv, look, when.after_s, stdout, peaks=when.peaks))


def _seen(traced: Traced[AddressMap | PagelabError]) -> tuple[AddressMap, int]:
    """The map, at the peak if there was one, and the program's exit code; 0 if the program has not ended by itself."""
    from pagelab.placement.table import fuller

    if isinstance(traced.value, PagelabError):
        raise traced.value
    at_peak = None if isinstance(traced.fullest, PagelabError) else traced.fullest
    return fuller(at_peak, traced.value), 0 if traced.moment == "now" else traced.exit_code


_Flags = tuple[list[str] | None, list[str] | None, list[str] | None, str | None, Path | None]


def _policy(
    given: _Flags, base: Path | None, chosen: ColourFunction | None
) -> tuple[tuple[Policy, Path | None], ColourFunction | None]:
    """The policy, and the colours: those of the map's flags, else the policy's own, else the machine's."""
    from pagelab import machine, policy
    from pagelab.placement import colours

    described = machine.describe()
    pages, fetch, frames, via, layout = given
    flags = policy.Flags(pages=pages or (), fetch=fetch or (), frames=frames or (), via=via, layout=layout)
    asked = policy.from_flags(flags, described, base)
    policy.check_runnable(asked, described)
    if chosen is None or chosen.source.startswith("L"):
        chosen = colours.from_policy(asked.document, described) or chosen
    return (asked, base), chosen


def _request(
    argv: list[str], stdout: str, asked: tuple[Policy, Path | None] | None, randomised: bool | None
) -> RunRequest:
    """The launcher's request; without a policy, no library is loaded into the program."""
    from pagelab.runner import RunRequest

    policy, base = asked or (None, None)
    return RunRequest(
        argv=argv,
        policy_toml="" if policy is None else policy.toml,
        policy_path=None if base is None else str(base),
        preload="never" if policy is None else "auto",
        aslr=randomised,
        stdin="inherit",
        stdout=stdout,
    )


def _run_governed(
    request: RunRequest,
    policy: str | None,
    when: _When,
    look: Callable[[int, Moment], AddressMap | PagelabError],
) -> tuple[AddressMap, int]:
    from pagelab.placement import governed

    traced, record = governed.run_and_map(request, look, when.after_s, peaks=when.peaks)
    found, ended = _seen(traced)
    return found.model_copy(update={"policy": policy, "warnings": [*found.warnings, *record.warnings]}), ended


def _show(found: AddressMap, *, as_json: bool, output: Path | None, everything: bool) -> None:
    text = found.model_dump_json(by_alias=True)
    if output is not None:
        try:
            whole_file.put(output, text + "\n")
        except OSError as error:
            raise cannot_write(output, error) from error
    if as_json:
        terminal.echo(text)
        return

    from pagelab.placement.table import summary, table

    # A file or a pipe has no width of its own: there, nothing is left out.
    console = terminal.console() if sys.stdout.isatty() or "COLUMNS" in os.environ else terminal.console(width=180)
    console.print(summary(found), highlight=False, markup=False, soft_wrap=True)
    console.print()
    console.print(table(found, everything=everything, width=console.width))
    if found.colouring is not None:
        _show_colours(console, found, found.colouring, everything=everything)
    for warning in found.warnings:
        console.print(f"\n{warning.severity}: {warning.message}", highlight=False, markup=False)
    if not found.folios:
        console.print("\nPage sizes between 4K and 2M and frame numbers need root: sudo pagelab map …", style="dim")


def _show_colours(console: Console, found: AddressMap, colouring: Colouring, *, everything: bool) -> None:
    from pagelab.placement.table import COLOUR_LEGEND, colour_heading, colour_table

    console.print(f"\n{colour_heading(colouring)}", highlight=False, markup=False)
    shown, rest = colour_table(found, everything=everything, width=console.width)
    console.print(shown)
    if rest:
        console.print(rest, style="dim", highlight=False)
    console.print(COLOUR_LEGEND, style="dim", highlight=False, soft_wrap=True)
