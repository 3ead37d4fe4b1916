"""``pagelab simulate paging``: page faults under page colours, for every memory size, from a trace."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagelab import terminal
from pagelab.cli.simulate.values import DEFAULT_COLOURS

if TYPE_CHECKING:
    import polars as pl

    from pagelab.simulate.page_faults import Curves


@dataclass(frozen=True)
class _Wanted:
    """The checked request."""

    trace: Path
    colours: list[int]
    sizes: list[int] | None
    """In pages; None: all."""
    page_bytes: int
    shared: dict[str, Any]
    """Keyword arguments that every simulation takes."""


def paging_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file, made by `pagelab trace`.")],
    colors: Annotated[
        str | None,
        typer.Option(
            "--colors", metavar="LIST", show_default=DEFAULT_COLOURS, help="Colour counts: 1,2,4 or 1..256 (doubling)."
        ),
    ] = None,
    memory: Annotated[
        str,
        typer.Option("--memory", metavar="LIST", help="Memory sizes: 1M,2M,4M, or all (in files and JSON only)."),
    ] = "1M,2M,4M,8M,16M,32M,64M",
    policy: Annotated[
        str, typer.Option("--policy", metavar="LIST", help="Replacement: lru, fifo, clock, random, opt.")
    ] = "lru",
    coloring: Annotated[
        str,
        typer.Option(
            "--coloring",
            metavar="HOW",
            help="modulo (page number modulo colours), pid-hashed, or xor:MASK,MASK… (one mask a bit of the colour).",
        ),
    ] = "modulo",
    sample: Annotated[
        float | None, typer.Option("--sample", metavar="RATE", help="LRU from this share of the pages (SHARDS).")
    ] = None,
    sample_pages: Annotated[
        int | None, typer.Option("--sample-pages", metavar="N", help="LRU from at most N pages, at a falling rate.")
    ] = None,
    page_size: Annotated[str, typer.Option("--page-size", metavar="SIZE", help="Page size, for traces.")] = "4K",
    threads: Annotated[int, typer.Option("--threads", metavar="N", min=1, help="Threads for LRU at all sizes.")] = 1,
    seed: Annotated[int, typer.Option("--seed", help="Seed of random replacement and of samples.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write tables (CSV, Parquet) and figures there.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the faults as JSON, one object a row.")] = False,
) -> None:
    """Page faults of a program whose memory is divided by colours: exact, for all sizes and colour counts in one pass.

    Memory of M frames in c colours is c lists of M/c frames. The table gives page faults per million references, as
    Lynch and Flynn's Tables 2 to 6; `--out` adds every memory size, the same relative to the fewest colours (their
    Figures 3 to 7), and how full memory is when the first colour runs out, with the model beside (Figure 2). Other
    policies than LRU are simulated at the sizes shown.

    **Examples**

        pagelab simulate paging sort.trace

        pagelab simulate paging sort.trace --colors 1..256 --memory 512K,1M,2M --out sort.paging

        pagelab simulate paging sort.trace --policy lru,clock,opt --colors 1,64

        pagelab simulate paging long.trace --sample-pages 8192 --memory 64M,256M,1G

        pagelab simulate paging sort.trace --coloring xor:0x1041,0x2082 --colors 1,2,4 --json
    """
    from pagelab.cli.simulate.values import (
        colours_and_memories,
        default_colours,
        directory,
        page_bytes_of,
        warn_of_killed,
    )
    from pagelab.errors import BadInputError
    from pagelab.simulate.page_faults import coloring as coloring_of
    from pagelab.sizes import numbers

    page_bytes, default = page_bytes_of(page_size), default_colours(trace) if colors is None else DEFAULT_COLOURS
    if memory == "all":
        counts = numbers(default if colors is None else colors, "--colors")
        sizes: list[int] | None = None
    else:
        counts, sizes = colours_and_memories(colors, memory, page_bytes, default)
    name, masks = coloring_of(coloring, "--coloring")
    shared = {"colouring": name, "masks": masks, "page_bytes": page_bytes}
    wanted = _Wanted(trace, counts, sizes, page_bytes, shared)
    directory(out)
    warn_of_killed(trace)
    sampled = sample is not None or sample_pages is not None
    if policy == "lru" and not sampled:
        _all_sizes(wanted, threads, out, as_json)
        return
    if sizes is None:
        raise BadInputError("--memory all: needs LRU without a sample; name the sizes, such as --memory 64M,1G")
    if sampled:
        if policy != "lru":
            raise BadInputError(f"--policy {policy}: samples are for LRU only")
        found = _sampled(wanted, sample, sample_pages, seed)
    else:
        found = _chosen(wanted, policy.split(","), seed)
    _tell(found, wanted, out, as_json)


def _sampled(wanted: _Wanted, rate: float | None, most_pages: int | None, seed: int) -> pl.DataFrame:
    from pagelab.cli.simulate.progress import shown
    from pagelab.simulate.sampling import sample

    assert wanted.sizes is not None
    with shown(f"sample {wanted.trace.name}") as report:
        found = sample(
            wanted.trace,
            wanted.sizes,
            wanted.colours,
            rate=rate,
            most_pages=most_pages,
            seed=seed,
            report=report,
            **wanted.shared,
        )
    omissions = found.omissions()
    if omissions is not None:
        typer.echo(omissions, err=True)
    return found.faults


def _chosen(wanted: _Wanted, policies: list[str], seed: int) -> pl.DataFrame:
    from pagelab.cli.simulate.progress import shown
    from pagelab.simulate.replacement_runs import replacement

    assert wanted.sizes is not None
    with shown(f"simulate {wanted.trace.name}") as report:
        return replacement(
            wanted.trace,
            policies,
            wanted.sizes,
            wanted.colours,
            seed=seed,
            report=report,
            **wanted.shared,
        )


def _tell(found: pl.DataFrame, wanted: _Wanted, out: Path | None, as_json: bool) -> None:
    from pagelab.simulate import tables

    if as_json:
        terminal.echo(found.write_json())
    else:
        if found.is_empty():
            terminal.echo("the sample has an estimate for none of these memory sizes and colours")
        for part in found.partition_by("policy", maintain_order=True):
            _table(part, part["policy"][0], wanted)
    if out is not None:
        files = tables.write_frame(found, out / "faults")
        if not as_json:
            terminal.echo(f"wrote {', '.join(path.name for path in files)} to {out}")


def _all_sizes(wanted: _Wanted, threads: int, out: Path | None, as_json: bool) -> None:
    from pagelab.cli.simulate.progress import shown
    from pagelab.simulate.page_faults import curves, smallest_of
    from pagelab.simulate.tables import size_name

    # The files have all sizes.
    smallest = smallest_of(wanted.sizes) if out is None else 1
    with shown(f"simulate {wanted.trace.name}") as report:
        found = curves(wanted.trace, wanted.colours, smallest=smallest, threads=threads, report=report, **wanted.shared)
    faults = found.faults(wanted.sizes)
    if as_json:
        terminal.echo(faults.write_json())
    else:
        held = size_name(found.pages * wanted.page_bytes)
        terminal.echo(f"{wanted.trace.name}: {found.references:,} references to {found.pages:,} pages ({held})")
        if found.exact_from > smallest:
            least = size_name(found.exact_from * wanted.page_bytes)
            terminal.echo(f"the trace was reduced to what matters from {least} on: smaller memories are left out")
        if wanted.sizes is not None:
            _table(faults, "lru", wanted)
            if found.pages in set(faults["faults"]):
                rate = found.pages / found.references * 1e6
                terminal.echo(f"{rate:.2f}: every page faults once, when it is first used")
    if out is not None:
        _write(found, faults, wanted, out, say=not as_json)


def _table(faults: pl.DataFrame, policy: str, wanted: _Wanted) -> None:
    from rich.table import Table

    from pagelab.simulate.tables import fault_table

    lines = fault_table(faults, wanted.page_bytes)
    title = f"page faults per million references ({policy}), by number of colours"
    table = Table(title=title, title_justify="left")
    for heading in lines[0]:
        table.add_column(heading, justify="right")
    for line in lines[1:]:
        table.add_row(*line)
    console = terminal.console(soft_wrap=True)
    console.print(table)
    if any("–" in line for line in lines):
        console.print("–: the colours do not divide this memory, or the trace or sample says nothing about it")


def _write(found: Curves, shown: pl.DataFrame, wanted: _Wanted, out: Path, *, say: bool) -> None:
    from pagelab.simulate import tables

    files = tables.write_frame(shown, out / "faults")
    files += tables.write_frame(found.faults(), out / "faults-all-sizes")
    files += tables.write_frame(found.utilisation(), out / "utilisation")
    if len(set(shown["colours"])) > 1:
        name = wanted.trace.name
        if wanted.sizes is not None:
            figure = tables.relative_figure(shown, wanted.page_bytes, f"{name}: page faults by colours")
            files += tables.write_figure(figure, out / "relative-faults")
        effective = tables.effective_memory({name: found})
        files += tables.write_frame(effective, out / "effective-memory")
        held = tables.size_name(found.pages * wanted.page_bytes)
        title = f"{name}: memory in use when the first colour is full, of {held}, as much as the program has"
        figure = tables.effective_figure(effective, title)
        files += tables.write_figure(figure, out / "effective-memory")
    if say:
        terminal.echo(f"wrote {', '.join(path.name for path in files)} to {out}")
