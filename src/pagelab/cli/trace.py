"""``pagelab trace``: capture, info, convert, concat, interleave, reduce."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from pagelab import terminal
from pagelab.cli.options import Argv
from pagelab.errors import BadInputError, PagelabError, RunFailedError
from pagelab.spelling import meant, nearest

if TYPE_CHECKING:
    from pagelab.trace import Capture

_WHAT = "What is kept"
_WINDOW = "When"
_HOW = "How"


class _CaptureByDefault(TyperGroup):
    """A group in which ``capture`` may be left out: ``pagelab trace -- CMD``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            _refuse_misspelt(ctx, args[0], list(self.commands))
            args = ["capture", *args]
        return super().parse_args(ctx, args)


def _refuse_misspelt(ctx: Any, word: str, known: list[str]) -> None:
    """Refuses a word that resembles a command's name and is not a program on PATH."""
    if not word.startswith("-") and nearest(word, known) and shutil.which(word) is None:
        ctx.fail(f"there is no command {ctx.command_path} {word}{meant(word, known)}")


trace_app = typer.Typer(
    cls=_CaptureByDefault,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    help="Traces of a program's references: `pagelab trace -- CMD` captures one, the commands read it.",
)

Page = Annotated[
    str | None,
    typer.Option("--page", metavar="SIZE", help="Make page runs of this page size: 4K, 2M.", rich_help_panel=_WHAT),
]
Kinds = Annotated[
    str | None,
    typer.Option(
        "--kinds", metavar="LIST", help="Full references: only load,store,fetch,other.", rich_help_panel=_WHAT
    ),
]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing file.")]
Level = Annotated[int, typer.Option("--level", metavar="N", help="Compression, 1 (fast) to 19.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Out = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The new trace.")]
Source = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace.")]
Sources = Annotated[list[Path], typer.Argument(metavar="TRACE...", help="Traces, in this order.")]
Target = Annotated[Path, typer.Argument(metavar="NEW", help="The new trace.")]
SameSpace = Annotated[
    bool, typer.Option("--same-space", help="All traces are of one process: equal page numbers are the same page.")
]


@trace_app.command("capture", context_settings={"allow_interspersed_args": False})
def capture_command(
    argv: Argv,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="The trace (default: NAME.trace).")
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Every reference with address, kind, size, thread.", rich_help_panel=_WHAT)
    ] = False,
    page: Annotated[
        str, typer.Option("--page", metavar="SIZE", help="Page size of the runs.", rich_help_panel=_WHAT)
    ] = "4K",
    fetches: Annotated[
        bool, typer.Option("--fetches", help="Instruction fetches as well.", rich_help_panel=_WHAT)
    ] = False,
    kinds: Annotated[
        str | None,
        typer.Option("--kinds", metavar="LIST", help="Only these kinds: load,store,fetch.", rich_help_panel=_WHAT),
    ] = None,
    ranges: Annotated[
        list[str] | None,
        typer.Option(
            "--range",
            metavar="LOW-HIGH",
            help="Only these addresses (hexadecimal). Repeatable.",
            rich_help_panel=_WHAT,
        ),
    ] = None,
    children: Annotated[
        bool,
        typer.Option("--children/--no-children", help="Follow fork and exec.", rich_help_panel=_WHAT),
    ] = True,
    first: Annotated[
        int,
        typer.Option("--first", metavar="N", help="Begin at this instruction of each image.", rich_help_panel=_WINDOW),
    ] = 0,
    count: Annotated[
        int | None, typer.Option("--count", metavar="N", help="End after N instructions.", rich_help_panel=_WINDOW)
    ] = None,
    marker: Annotated[
        bool,
        typer.Option(
            "--marker",
            help="From the program's pagelab_begin or prctl(0x50474c42, 1) to its pagelab_end or prctl(0x50474c42).",
            rich_help_panel=_WINDOW,
        ),
    ] = False,
    end_program: Annotated[
        bool, typer.Option("--end-program", help="End the program with the window.", rich_help_panel=_WINDOW)
    ] = False,
    pools: Annotated[
        bool,
        typer.Option(
            "--pools",
            help="Place heap, mappings and arenas as governed runs do, so that page sizes apply to the trace.",
            rich_help_panel=_HOW,
        ),
    ] = False,
    policy: Annotated[
        Path | None,
        typer.Option("--policy", metavar="FILE", help="With --pools: as under this policy.", rich_help_panel=_HOW),
    ] = None,
    way: Annotated[
        str, typer.Option("--way", metavar="qemu|lackey", help="The emulator.", rich_help_panel=_HOW)
    ] = "qemu",
    cpu: Annotated[str, typer.Option("--cpu", metavar="MODEL", help="QEMU's CPU model.", rich_help_panel=_HOW)] = "max",
    sysroot: Annotated[
        str | None,
        typer.Option("--sysroot", metavar="DIR", help="A foreign program's library directory.", rich_help_panel=_HOW),
    ] = None,
    level: Level = 1,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Run a program in an emulator and write its references; the word `capture` can be left out.

    Without options, page runs of loads and stores are written. The program runs about a hundred times slower than by
    itself. The kernel's accesses in its system calls are not recorded.

    **Examples**

        pagelab trace capture -- sort words

        pagelab trace capture --full --fetches -o sort.trace -- sort words

        pagelab trace capture --first 1000000000 --count 100000000 --end-program -- ./solver

        pagelab trace capture --pools --full --marker -- pagelab-workload gups --bytes 256M

        pagelab trace capture --way lackey --full -- true
    """
    from pagelab import trace
    from pagelab.policy import load

    path = out or Path(f"{Path(argv[0]).name}.trace")
    chosen = _kinds(kinds) or (("load", "store", "fetch") if fetches else ("load", "store"))
    if policy is not None and not pools:
        raise BadInputError("--policy says where pools are; run: pagelab trace --pools --policy FILE -- CMD")
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "0") != "0":
        words = (
            "the program runs as root, not as the user who called sudo; tracing needs no rights: run it without sudo"
        )
        terminal.echo(f"pagelab: {words}", err=True)
    if way == "qemu":
        with _told_what_is_kept(path), _told_meanwhile(path):
            found = trace.capture(
                argv,
                path,
                full=full,
                page_bytes=page,
                kinds=chosen,
                ranges=[_range(text) for text in ranges or ()],
                first=first,
                count=count,
                marker=marker,
                end_program=end_program,
                children=children,
                cpu=cpu,
                sysroot=sysroot,
                level=level,
                force=force,
                pools=pools if policy is None else load(policy),
            )
    elif way == "lackey":
        if ranges or first or count or marker or end_program or sysroot or pools:
            raise BadInputError(
                "lackey has no windows, ranges, pools and foreign programs; run: pagelab trace --way qemu"
            )
        with _told_what_is_kept(path):
            found = trace.capture_with_lackey(
                argv, path, full=full, page_bytes=page, kinds=chosen, level=level, force=force
            )
    else:
        raise BadInputError(f"--way {way}: allowed: qemu, lackey")
    _show_capture(found, as_json=as_json)
    if found.status != 0:
        how = f"exit code {found.status}" if found.status > 0 else f"signal {-found.status}"
        raise RunFailedError(f"{argv[0]} ended with {how}; its trace is kept: {path}")


class CutShortError(PagelabError):
    """A capture was interrupted; the trace has what was captured until then."""

    exit_code = 130


@contextmanager
def _told_what_is_kept(path: Path) -> Iterator[None]:
    """Tells after Ctrl-C and SIGTERM, which end the program, that the trace is only a part, and how all of it is
    captured."""
    from pagelab import trace
    from pagelab.study.interrupts import Interrupts

    before = _written_at(path)
    try:
        with Interrupts() as interrupts, interrupts.abandonable():
            yield
    except KeyboardInterrupt:
        if _written_at(path) == before:
            raise
        references = trace.info(path)["references"]
        raise CutShortError(
            f"interrupted; {path} has the references until then ({references:,}); for all of them, repeat the command "
            "with --force"
        ) from None


def _written_at(path: Path) -> int | None:
    """When the file was written last, in ns; None where there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return None


def _told_meanwhile(path: Path) -> AbstractContextManager[None]:
    """Tells on standard error how long the program has been in the emulator, from time to time."""
    from pagelab.study.progress import meanwhile, shown_duration
    from pagelab.trace.capture import written_bytes

    def text(so_far_s: float) -> str:
        return f"pagelab: {shown_duration(so_far_s)} in the emulator, {written_bytes(path) >> 20} MiB written"

    return meanwhile(lambda line: terminal.echo(line, err=True), text)


def _kinds(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",")) if text else ()


def _range(text: str) -> tuple[int, int]:
    low, _, high = text.partition("-")
    try:
        return int(low, 16), int(high, 16)
    except ValueError:
        raise BadInputError(f"--range {text}: two hexadecimal addresses, LOW-HIGH") from None


def _show_capture(found: Capture, *, as_json: bool) -> None:
    from pagelab.cli import trace_text

    if as_json:
        from dataclasses import asdict

        _print_json(asdict(found) | {"path": str(found.path)})
        return
    for line in trace_text.captured(found):
        terminal.say(f"{line}\n")


def _print_json(value: dict[str, Any]) -> None:
    import json

    terminal.echo(json.dumps(value, indent=2))


@trace_app.command("info")
def info_command(
    source: Source,
    thorough: Annotated[
        bool, typer.Option("--thorough", help="Read all of it: check every chunk, count kinds, threads, pages.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show the contents of a trace and its origin.

    **Examples**

        pagelab trace info sort.trace

        pagelab trace info --thorough --json sort.trace
    """
    from pagelab import trace
    from pagelab.cli import trace_text

    found = trace.info(source, thorough=thorough)
    if as_json:
        _print_json(found)
    else:
        for line in trace_text.info(source, found):
            terminal.echo(line)
    damage = (found["thorough"] or {}).get("damage")
    if damage or not found["complete"]:
        raise BadInputError(
            damage
            or f"{source}: the trace is torn, or bytes follow its end; run: "
            f"pagelab trace convert --recover {source} NEW"
        )


@trace_app.command("convert")
def convert_command(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="The trace to read; - for standard input.")],
    target: Target,
    from_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="lackey, dinero, champsim, csv, parquet, raw, raw-pages, perf-script; without it, a pagelab trace.",
        ),
    ] = None,
    page: Page = None,
    its_page: Annotated[
        str, typer.Option("--its-page", metavar="SIZE", help="Page size of a foreign trace that has page numbers.")
    ] = "4K",
    kinds: Kinds = None,
    recover: Annotated[bool, typer.Option("--recover", help="Keep every intact chunk of a damaged trace.")] = False,
    level: Level = 3,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert another tool's trace, make a smaller trace, or recover a damaged one.

    **Examples**

        zcat gcc.din.gz | pagelab trace convert --from dinero - gcc.trace

        pagelab trace convert --page 2M --kinds load,store full.trace runs.trace

        pagelab trace convert --recover torn.trace whole.trace
    """
    from pagelab import trace

    written = trace.convert(
        source,
        target,
        format=from_format,
        page_bytes=page,
        foreign_page_bytes=its_page,
        kinds=_kinds(kinds) or None,
        recover=recover,
        force=force,
        level=level,
    )
    _show_written(target, written, as_json=as_json)


def _show_written(target: Path, written: dict[str, Any], *, as_json: bool) -> None:
    from pagelab.cli import trace_text

    if as_json:
        _print_json(written)
    else:
        terminal.echo(trace_text.written(target, written))


@trace_app.command("concat")
def concat_command(
    sources: Sources,
    out: Out,
    page: Page = None,
    kinds: Kinds = None,
    same_space: SameSpace = False,
    level: Level = 3,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """One trace after the other, each in an address space of its own.

    **Examples**

        pagelab trace concat -o both.trace make.trace link.trace
    """
    from pagelab import trace

    options = {"same_space": same_space, "page_bytes": page, "level": level, "force": force}
    written = trace.concat(sources, out, kinds=_kinds(kinds) or None, **options)
    _show_written(out, written, as_json=as_json)


@trace_app.command("interleave")
def interleave_command(
    sources: Sources,
    out: Out,
    quantum: Annotated[int, typer.Option("--quantum", metavar="N", help="References from one trace before the next.")],
    page: Page = None,
    kinds: Kinds = None,
    same_space: SameSpace = False,
    level: Level = 3,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Traces in turns, as processes share a processor: PAGING's multiprogrammed workload.

    **Examples**

        pagelab trace interleave --quantum 100000 -o mult.trace make.trace tree.trace shell.trace
    """
    from pagelab import trace

    options = {"same_space": same_space, "page_bytes": page, "level": level, "force": force}
    written = trace.interleave(sources, out, quantum=quantum, kinds=_kinds(kinds) or None, **options)
    _show_written(out, written, as_json=as_json)


@trace_app.command("reduce")
def reduce_command(
    source: Source,
    target: Target,
    memory: Annotated[
        str, typer.Option("--memory", metavar="SIZE", help="Stay exact for memories of this size and more: 16M.")
    ],
    colours: Annotated[
        str, typer.Option("--colors", metavar="LIST", help="Stay exact for these numbers of colours: 1,2,4.")
    ] = "1",
    page: Page = None,
    kinds: Kinds = None,
    level: Level = 3,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Drop references that cannot matter to larger memories: LRU's faults stay exactly the same (and OPT's).

    **Examples**

        pagelab trace reduce --memory 1M --colors 1,2,4,8,16,32,64 sor.trace sor-1M.trace
    """
    from pagelab import trace

    try:
        counts = [int(word) for word in colours.split(",")]
    except ValueError:
        raise BadInputError(f"--colors {colours}: numbers with commas between them") from None
    written = trace.reduce(
        source,
        target,
        memory=memory,
        colours=counts,
        page_bytes=page,
        kinds=_kinds(kinds) or None,
        level=level,
        force=force,
    )
    _show_written(target, written, as_json=as_json)
