"""``pagelab simulate tlb``: a trace through translation hardware, with any mixture of page sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.simulate.placements import Placement, Region
    from pagelab.simulate.tlb_runs import TlbRuns

_WINDOWS_SHOWN = 10


def tlb_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace: full references, or page runs of 4K.")],
    processor: Annotated[
        str, typer.Option("--processor", metavar="NAME|FILE", help="A processor's name, or a TOML file with [tlb].")
    ],
    pages: Annotated[
        list[str] | None,
        typer.Option("--pages", metavar="SIZE", help="4K, 64K, 2M, 1G, heap=0-64M:2M ...; repeat to compare."),
    ] = None,
    policy: Annotated[
        list[Path] | None,
        typer.Option("--policy", metavar="FILE", help="A policy's TOML file or a Mosalloc CSV; repeat to compare."),
    ] = None,
    regions: Annotated[
        Path | None, typer.Option("--regions", metavar="FILE", help="Memory regions: the output of pagelab map --json.")
    ] = None,
    caches: Annotated[
        bool, typer.Option("--caches", help="Simulate the data caches too: table entries compete for their lines.")
    ] = False,
    windows: Annotated[
        int | None,
        typer.Option("--windows", metavar="N", help="Simulate N windows of a long trace, with standard errors."),
    ] = None,
    length: Annotated[
        int | None,
        typer.Option("--length", metavar="N", help="References of a window (default: 5% of the trace in all)."),
    ] = None,
    warm_up: Annotated[
        int | None,
        typer.Option("--warm-up", metavar="N", help="References before each window (default: twice its length)."),
    ] = None,
    executions: Annotated[
        int, typer.Option("--executions", "-n", min=1, help="Executions, each with its own history.")
    ] = 1,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first execution; others: seed + 1, …")] = 0,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads (default: all processors).")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="H, M and C of every window: .parquet or .csv.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every execution as JSON.")] = False,
) -> None:
    """Simulate TLBs and page walks: the cost of translation with other page sizes, or on another processor.

    H, M and C are those of MOSAIC's Table 2: misses of the first level that hit in the second, misses of both, and
    the cycles
    that walks take.

    **Examples**

        pagelab simulate tlb gups.trace --processor broadwell --pages 4K --pages 2M --pages 1G

        pagelab simulate tlb gups.trace --processor zen-4 --policy hot-2m.toml --regions map.json

        pagelab simulate tlb long.trace --processor zen-4 --pages 4K --windows 40

        pagelab simulate tlb gups.trace --processor sandy-bridge --caches --output windows.parquet
    """
    from pagelab.cli.simulate.cache import _progress
    from pagelab.cli.simulate.values import warn_of_killed
    from pagelab.simulate.export import check_table, write_table
    from pagelab.simulate.placements import placement, placement_of_pages, regions_of_map
    from pagelab.simulate.tlb_runs import tlb

    warn_of_killed(trace)
    known = regions_of_map(regions) if regions else []
    wanted = [placement_of_pages(text, regions=known) for text in pages or []]
    wanted += [placement(path, regions=known) for path in policy or []]
    if windows is not None:
        for option, given in (("--caches", caches), ("--output", output is not None), ("--regions", bool(known))):
            if given:
                raise BadInputError(f"{option}: whole traces only; leave out --windows")
        if executions != 1:
            raise BadInputError(
                "--executions: with --windows there is only one execution, and the error comes from the scatter of the "
                "windows; leave it out"
            )
        terminal.echo(_sampled(trace, processor, wanted, (windows, length, warm_up, seed, threads), as_json=as_json))
        return
    if length is not None or warm_up is not None:
        raise BadInputError("--length and --warm-up apply to windows only; give the number of windows: --windows 30")
    if output is not None:
        check_table(output)
    runs = tlb(
        trace,
        processor,
        wanted or [placement_of_pages("4K")],
        caches=caches,
        seeds=range(seed, seed + executions),
        threads=threads,
        report=_progress(),
    )
    terminal.echo(runs.executions.write_json() if as_json else _text(runs, known))
    if output is not None:
        write_table(runs.windows, output)


def _sampled(
    trace: Path,
    processor: str,
    wanted: list[Placement],
    sizes: tuple[int, int | None, int | None, int, int | None],
    *,
    as_json: bool,
) -> str:
    from pagelab.simulate.placements import placement_of_pages
    from pagelab.simulate.tlb_estimate import COUNTS, tlb_windows

    windows, length, warm_up, seed, threads = sizes
    found = tlb_windows(
        trace,
        processor,
        wanted or [placement_of_pages("4K")],
        windows=windows,
        length=length,
        warm_up=warm_up,
        seed=seed,
        threads=threads,
    )
    if as_json:
        return found.executions.write_json()
    total = found.executions["references"][0]
    lines = [
        f"{found.hardware}: {windows} windows of {found.length:,} of {total:,} references, each after "
        f"{found.warm_up:,} references of warm-up",
        "",
    ]
    for row in found.executions.iter_rows(named=True):
        for name in COUNTS:
            lines.append(
                f"{row['placement']:<12} {name.upper()} {row[name]:>18,.0f} ± {row[f'{name}_se']:,.0f} "
                f"(95% interval {row[f'{name}_low']:,.0f} to {row[f'{name}_high']:,.0f})"
            )
    return "\n".join([*lines, "of the whole trace, with the standard error of the windows"])


def _text(runs: TlbRuns, regions: list[Region]) -> str:
    first = max(runs.executions["translations"].to_list())
    lines = [f"{runs.hardware}: {first:,} translations", ""]
    names = runs.executions["placement"]
    width = max(len("pages"), *(len(name) for name in names))
    lines.append(f"{'pages':<{width}} {'seed':>5} {'H':>14} {'M':>14} {'C':>16} {'C / M':>7} {'M / 1000':>14}")
    for row in runs.executions.iter_rows(named=True):
        walk = f"{row['c'] / row['m']:.1f}" if row["m"] else "-"
        rate = f"{1000 * row['m'] / row['translations']:.3f}" if row["translations"] else "-"
        lines.append(
            f"{row['placement']:<{width}} {row['seed']:>5} {row['h']:>14,} {row['m']:>14,} {row['c']:>16,}"
            f" {walk:>7} {rate:>14}"
        )
    lines.append(
        "H: found in the second level; M: walked the page tables; C: cycles of walks; M / 1000: of 1,000 references"
    )
    lines += ["", *(_regions(runs, regions) if regions else _windows(runs))]
    return "\n".join(lines)


def _windows(runs: TlbRuns) -> list[str]:
    """The windows of 2 MiB that cost most under the first placement."""
    own = runs.windows.filter(
        (runs.windows["placement"] == runs.executions["placement"][0])
        & (runs.windows["seed"] == runs.executions["seed"][0])
    )
    top = own.sort("c", "h", descending=True).head(_WINDOWS_SHOWN)
    lines = [f"the windows of 2 MiB that cost most with {runs.executions['placement'][0]}, of {len(own):,}:"]
    lines.append(f"{'address':>18} {'H':>12} {'M':>12} {'C':>14}")
    for row in top.iter_rows(named=True):
        lines.append(f"{row['start']:#18x} {row['h']:>12,} {row['m']:>12,} {row['c']:>14,}")
    return lines


def _regions(runs: TlbRuns, regions: list[Region]) -> list[str]:
    lines = [f"{'pages':<12} {'region':>18} {'kind':<10} {'H':>12} {'M':>12} {'C':>14}"]
    for row in runs.regions(regions).iter_rows(named=True):
        start = "" if row["start"] is None else f"{row['start']:#x}"
        lines.append(
            f"{row['placement']:<12} {start:>18} {row['kind']:<10} {row['h']:>12,} {row['m']:>12,} {row['c']:>14,}"
        )
    return lines
