"""``pagelab simulate cache``: a trace through physically indexed caches, under placements of pages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.errors import quoted

if TYPE_CHECKING:
    import polars as pl

    from pagelab.simulate.cache_runs import CacheRuns
    from pagelab.simulate.placements import History


def cache_command(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", help="A trace of full references (pagelab trace).")],
    hierarchy: Annotated[
        str, typer.Option("--hierarchy", metavar="NAME|FILE", help="A processor's name, or a TOML file with [cache].")
    ],
    frames: Annotated[
        list[str] | None,
        typer.Option(
            "--frames",
            metavar="STRATEGY",
            help="kernel, page-coloring, bin-hopping, random, modulo:map=FILE, exact:map=FILE ...; repeat to compare.",
        ),
    ] = None,
    policy: Annotated[
        list[Path] | None, typer.Option("--policy", metavar="FILE", help="A policy's TOML file; repeat to compare.")
    ] = None,
    executions: Annotated[
        int, typer.Option("--executions", "-n", min=1, max=10_000, help="Executions, each with its own history.")
    ] = 20,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the first execution; others: seed + 1, …")] = 0,
    memory: Annotated[str, typer.Option("--memory", metavar="SIZE", help="Memory of the simulated machine.")] = "1G",
    past: Annotated[
        str, typer.Option("--past", metavar="NAME", help="History of the machine: mixed, compile, page-cache, forks.")
    ] = "mixed",
    used: Annotated[
        float | None, typer.Option("--used", help="Share of memory that other programs hold (default: by --past).")
    ] = None,
    cached: Annotated[
        float | None, typer.Option("--cached", help="Share of memory that holds file pages (default: by --past).")
    ] = None,
    turnover: Annotated[
        float | None,
        typer.Option("--turnover", help="How often memory was allocated before; 0: a machine just booted."),
    ] = None,
    threads: Annotated[int | None, typer.Option("--threads", min=1, help="Threads (default: all processors).")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", metavar="FILE", help="Every execution and level: .parquet or .csv.")
    ] = None,
    study: Annotated[
        Path | None,
        typer.Option("--study", metavar="DIR", help="Write a study, for pagelab report and compare."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print every execution as JSON.")] = False,
) -> None:
    """Simulate physically indexed caches: a program's cache misses, and how much they differ between executions.

    Each execution has a machine with a history of its own: the seed draws the programs that ran before, and so the
    frames that are free.

    **Examples**

        pagelab simulate cache fft.trace --hierarchy zen-3

        pagelab simulate cache fft.trace --hierarchy pentium-4 --frames kernel --frames bin-hopping

        pagelab simulate cache solver.trace --hierarchy mine.toml --frames exact:map=slow.json

        pagelab simulate cache fft.trace --hierarchy pentium-4 --frames kernel --frames page-coloring --study fft.study
    """
    from pagelab.cli.simulate.values import warn_of_killed
    from pagelab.simulate.cache_runs import cache
    from pagelab.simulate.export import as_study, check_directory, check_table, write_table

    if output is not None:
        check_table(output)
    if study is not None:
        check_directory(study)
    warn_of_killed(trace)
    history = _history(past, memory, {"used": used, "cached": cached, "turnover": turnover})
    wanted = [*(frames or []), *(str(path) for path in policy or [])] or ["kernel"]
    seeds = range(seed, seed + executions)
    runs = cache(trace, hierarchy, wanted, seeds=seeds, history=history, threads=threads, report=_progress())
    # The answer first: neither a full disk nor another error of the files takes it away.
    terminal.echo(runs.executions.write_json() if as_json else _text(runs))
    if output is not None:
        write_table(runs.levels, output)
    if study is not None:
        as_study(runs, study, trace)
        terminal.echo(f"\nstudy written; see: pagelab report {quoted(study)}")


def _history(past: str, memory: str, given: dict[str, float | None]) -> History:
    from pagelab.simulate.history import History
    from pagelab.sizes import size_bytes

    said = {name: value for name, value in given.items() if value is not None}
    return History.of(past, memory_bytes=size_bytes(memory, "--memory"), **said)


def _progress() -> Callable[[int, int | None], None] | None:
    """Progress on a terminal's standard error, nothing elsewhere."""
    import sys

    if not sys.stderr.isatty():
        return None

    def report(done: int, total: int | None) -> None:
        share = f" of {total / 1e6:,.0f} M ({100 * done / total:.0f}%)" if total else " M"
        sys.stderr.write(f"\r{done / 1e6:,.0f}{share} references")

    return report


def _text(runs: CacheRuns) -> str:
    from pagelab.simulate.spread import spread_table

    each = runs.executions["seed"].n_unique()
    header = f"{runs.hierarchy}: {_references(runs.levels):,} accesses, {each} executions of each placement"
    return "\n".join([header, "", *spread_table(runs), *_replayed(runs.executions), *_trouble(runs.executions)])


def _replayed(executions: pl.DataFrame) -> list[str]:
    """The share of the program's pages that a saved map covers."""
    lines = []
    for row in executions.unique("placement", keep="first", maintain_order=True).iter_rows(named=True):
        name = row["placement"]
        if "map=" not in name:
            continue
        if row["replayed"]:
            lines.append(f"{name}: {row['replayed']:,} of {row['pages']:,} pages are in the saved map")
        else:
            lines.append(
                f"warning: {name}: none of the trace's pages is in the saved map; save one of the emulated program: "
                "sudo pagelab map --save FILE -- qemu-x86_64 -cpu max PROGRAM (docs/simulate-cache.md)"
            )
    return ["", *lines] if lines else []


def _trouble(executions: pl.DataFrame) -> list[str]:
    """Warnings about the request."""
    said = {
        "beyond": "pages found no memory: give the simulated machine more with --memory",
        "fallbacks": "pages got another colour than asked: there was none left",
    }
    lines = []
    for column, text in said.items():
        most = max(executions[column].to_list())
        if most:
            lines.append(f"warning: up to {most:,} {text}")
    return ["", *lines] if lines else []


def _references(levels: pl.DataFrame) -> int:
    """Accesses of the core: those of the first levels of data and instructions."""
    first = levels.filter((levels["placement"] == levels["placement"][0]) & (levels["seed"] == levels["seed"][0]))
    return sum(max(first[f"{kind}_accesses"].to_list()) for kind in ("load", "store", "fetch"))
