"""``pagelab simulate model``: memory in use when the first colour runs out, by the analytical model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pagelab import terminal
from pagelab.cli.simulate.values import DEFAULT_COLOURS

if TYPE_CHECKING:
    from pagelab.simulate.analytical_model import Convention

_DEFAULT = "8M,16M,32M,64M"
_TITLES = {
    "filled": "share of memory in use when one colour is full (M_eff, filled), by number of colours",
    "refused": "requests until one is refused, over pages of memory (M_eff, refused), by number of colours",
    "before": "share of memory in use when a request is refused (M_eff, before), by number of colours",
}


def model_command(
    colors: Annotated[
        str | None,
        typer.Option(
            "--colors", metavar="LIST", show_default=DEFAULT_COLOURS, help="Colour counts: 1,2,4 or 1..256 (doubling)."
        ),
    ] = None,
    memory: Annotated[str, typer.Option("--memory", metavar="LIST", help="Memory sizes.")] = _DEFAULT,
    convention: Annotated[
        str,
        typer.Option(
            "--convention",
            metavar="WHICH",
            help="filled: until one colour is fully allocated (as traces are simulated); refused: the paper's formula, "
            "which counts the refused request too; before: the allocations before it; all: the three side by side.",
        ),
    ] = "filled",
    page_size: Annotated[str, typer.Option("--page-size", metavar="SIZE", help="Page size.")] = "4K",
    check: Annotated[
        int | None, typer.Option("--check", metavar="RUNS", help="Also simulate the model RUNS times (99% interval).")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Seed of the check's draws.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Write the table (CSV, Parquet) and Figure 1 there.")
    ] = None,
) -> None:
    """Effective memory utilisation by Lynch and Flynn's model: the share of memory in use when one colour is full.

    It assumes that the colours of requests are independent and uniform, which is pessimistic for real programs: compare
    with `pagelab simulate paging TRACE --out DIR`, which simulates the same from a trace.

    **Examples**

        pagelab simulate model

        pagelab simulate model --colors 64 --memory 1M --convention all --check 5000

        pagelab simulate model --colors 1..4096 --memory 64M,1G,64G --out model
    """
    from pagelab.cli.simulate.values import colours_and_memories, directory, page_bytes_of
    from pagelab.errors import BadInputError
    from pagelab.simulate.analytical_model import Convention

    page_bytes = page_bytes_of(page_size)
    counts, sizes = colours_and_memories(colors, memory, page_bytes)
    names = {one.value: [one] for one in Convention} | {"all": list(Convention)}
    if convention not in names:
        raise BadInputError(f"--convention {convention}: not known; allowed: {', '.join(names)}")
    directory(out)
    for chosen in names[convention]:
        _table(counts, sizes, page_bytes, chosen)
        if check is not None:
            _check(counts, sizes, chosen, check, seed)
    if out is not None:
        _write(counts, sizes, page_bytes, names[convention][0], out)


def _table(counts: list[int], sizes: list[int], page_bytes: int, convention: Convention) -> None:
    from rich.table import Table

    from pagelab.simulate import analytical_model
    from pagelab.simulate.tables import size_name

    found = analytical_model.table(counts, sizes, convention)
    cells = {(row["memory_pages"], row["colours"]): row["m_eff"] for row in found.iter_rows(named=True)}
    table = Table(title=_TITLES[convention.value], title_justify="left")
    table.add_column("memory", justify="right")
    for count in counts:
        table.add_column(str(count), justify="right")
    for size in sizes:
        shown = (cells.get((size, count)) for count in counts)
        table.add_row(size_name(size * page_bytes), *("–" if value is None else f"{value:.4f}" for value in shown))
    terminal.console(soft_wrap=True).print(table)


def _check(counts: list[int], sizes: list[int], convention: Convention, runs: int, seed: int) -> None:
    from pagelab.simulate import analytical_model

    for row in analytical_model.table(counts, sizes, convention).iter_rows(named=True):
        colours, pages = row["colours"], row["pages_per_colour"]
        found = analytical_model.monte_carlo(colours, pages, convention, runs=runs, seed=seed)
        inside = found.low <= row["allocated"] <= found.high
        verdict = "inside" if inside else "OUTSIDE, as 1 in 100 is by chance: see with more runs or another --seed"
        terminal.echo(
            f"{colours} colours of {pages} pages: model {row['allocated']:.3f}, played {found.mean:.3f} "
            f"({found.low:.3f} to {found.high:.3f}): {verdict}"
        )


def _write(counts: list[int], sizes: list[int], page_bytes: int, convention: Convention, out: Path) -> None:
    from pagelab.simulate import analytical_model, tables

    found = analytical_model.table(counts, sizes, convention)
    files = tables.write_frame(found, out / "model")
    files += tables.write_figure(tables.model_figure(found, page_bytes), out / "model")
    terminal.echo(f"wrote {', '.join(path.name for path in files)} to {out}")
