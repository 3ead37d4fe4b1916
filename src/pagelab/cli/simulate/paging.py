"""``pagelab simulate paging``: page faults under page colours, for every memory size, from a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pagelab.simulate.page_faults import Curves


def paging_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, made by `pagelab trace`.")],
    colors: Annotated[
        str, typer.Option("--colors", metavar="LIST", help="Colour counts: 1,2,4 or 1..256 (doubling).")
    ] = "1..64",
    memory: Annotated[
        str,
        typer.Option("--memory", metavar="LIST", help="Memory sizes shown: 1M,2M,4M, or all (in the files, not here)."),
    ] = "1M,2M,4M,8M,16M,32M,64M",
    coloring: Annotated[
        str,
        typer.Option(
            "--coloring",
            metavar="HOW",
            help="modulo (page number modulo colours), pid-hashed, or xor:MASK,MASK… (one mask a bit of the colour).",
        ),
    ] = "modulo",
    page_size: Annotated[str, typer.Option("--page-size", metavar="SIZE", help="Page size, for traces.")] = "4K",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables (CSV, Parquet) and figures there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the faults as JSON, one object a row.")] = False,
) -> None:
    """Page faults of a program whose memory is divided by colours: exact, for all sizes and colour counts in one pass.

    Memory of M frames in c colours is c LRU lists of M/c frames. The table gives page faults per million references, as
    Lynch and Flynn's Tables 2 to 6; `--out` adds every memory size, the same relative to the fewest colours (their
    Figures 3 to 7), and how full memory is when the first colour runs out (Figure 2).

    **Examples**

        pagelab simulate paging sort.trace

        pagelab simulate paging sort.trace --colors 1..256 --memory 512K,1M,2M --out sort.paging

        pagelab simulate paging sort.trace --coloring xor:0x1041,0x2082 --colors 1,2,4 --json
    """
    from pagelab.cli.simulate.progress import shown
    from pagelab.cli.simulate.values import numbers, size_bytes, sizes_bytes
    from pagelab.simulate.page_faults import curves

    page_bytes = size_bytes(page_size, "--page-size")
    counts = numbers(colors, "--colors")
    sizes = None if memory == "all" else [size // page_bytes for size in sizes_bytes(memory, "--memory")]
    name, masks = _coloring(coloring)
    if out is not None:
        _directory(out)
    with shown(f"simulate {trace.name}") as report:
        found = curves(trace, counts, colouring=name, masks=masks, page_bytes=page_bytes, report=report)
    if as_json:
        typer.echo(found.faults(sizes).write_json())
    else:
        _print(found, trace, counts, sizes, page_bytes)
    if out is not None:
        _write(found, trace, sizes, page_bytes, out, say=not as_json)


def _coloring(text: str) -> tuple[str, list[int]]:
    from pagelab.errors import BadInputError

    name, _, rest = text.partition(":")
    try:
        return name, [int(mask, 0) for mask in rest.split(",")] if rest else []
    except ValueError as error:
        raise BadInputError(f"--coloring {text}: masks are numbers, such as xor:0x1041,0x2082") from error


def _directory(out: Path) -> None:
    from pagelab.errors import BadInputError

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadInputError(f"--out {out}: {error.strerror} (errno {error.errno})") from error


def _print(found: Curves, trace: Path, counts: list[int], sizes: list[int] | None, page_bytes: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from pagelab.simulate.tables import fault_table, size_name

    console = Console(soft_wrap=True)
    held = size_name(found.pages * page_bytes)
    console.print(f"{trace.name}: {found.references:,} references to {found.pages:,} pages ({held})")
    if sizes is None:
        return
    lines = fault_table(found.faults(sizes), page_bytes)
    table = Table(title="page faults per million references (LRU), by number of colours", title_justify="left")
    for heading in lines[0]:
        table.add_column(heading, justify="right")
    for line in lines[1:]:
        table.add_row(*line)
    console.print(table)
    if len(lines[0]) <= len(set(counts)) or any("–" in line for line in lines):
        console.print("– the number of colours does not divide this memory, or the trace is not exact there")


def _write(found: Curves, trace: Path, sizes: list[int] | None, page_bytes: int, out: Path, *, say: bool) -> None:
    from pagelab.simulate import tables

    shown = found.faults(sizes)
    files = tables.write_frame(shown, out / "faults")
    files += tables.write_frame(found.faults(), out / "faults-all-sizes")
    files += tables.write_frame(found.utilisation(), out / "utilisation")
    if len(set(shown["colours"])) > 1 and sizes is not None:
        figure = tables.relative_figure(shown, page_bytes, f"{trace.name}: page faults by colours")
        files += tables.write_figure(figure, out / "relative-faults")
    if say:
        typer.echo(f"wrote {', '.join(path.name for path in files)} to {out}")
