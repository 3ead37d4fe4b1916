"""Stand-ins for the traces of Lynch and Flynn's paper, captured, simulated and compared with its Tables 1 to 6.

``python -m bench.paging_paper DIR [--instructions 1000000000]``: with the default, each trace has over a billion
references (loads, stores, fetches) and takes minutes to capture. The paper's traces are not to be had, so its values
stand beside for orientation; they are no targets. What is in DIR already (a trace, a simulation) is not made again.

DIR gets, for each stand-in, its faults and Figures 3 to 7, for all of them Table 1 and Figure 2, and ``paper.md``:
Tables 1 to 6 with the paper's values.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from pagelab.simulate import tables
from pagelab.simulate.page_faults import PAPER_COLOURS, PAPER_MEMORY_MIB, curves

from .paging_paper_programs import STAND_INS, StandIn, capture
from .paging_paper_tables import FAULTS_PER_MILLION

PAGE_BYTES = 4096
MEMORY = [mib * (1 << 20) // PAGE_BYTES for mib in PAPER_MEMORY_MIB]


def simulate(directory: Path, one: StandIn) -> None:
    """Simulates one stand-in and writes the data of Tables 1 to 6 and Figure 2, unless they exist."""
    if (directory / f"{one.name}-effective.parquet").exists():
        return
    print(f"simulate {one.name}", flush=True)
    found = curves(directory / f"{one.name}.trace", PAPER_COLOURS, smallest=min(MEMORY))
    faults = found.faults(MEMORY)
    tables.write_frame(faults.with_columns(pages=pl.lit(found.pages)), directory / f"{one.name}-faults")
    # The last file: where it is, the other is.
    tables.write_frame(tables.effective_memory({one.name: found}), directory / f"{one.name}-effective")


def draw(directory: Path) -> None:
    """Figures 2 to 7."""
    for number, one in enumerate(STAND_INS, 3):
        faults = pl.read_parquet(directory / f"{one.name}-faults.parquet")
        figure = tables.relative_figure(faults, PAGE_BYTES, f"{one.name}: page faults (as PAGING's Figure {number})")
        tables.write_figure(figure, directory / f"{one.name}-relative")
    figure = tables.effective_figure(effective_memory(directory), "effective memory utilisation (as PAGING's Figure 2)")
    tables.write_figure(figure, directory / "effective-memory")


def overview(directory: Path) -> pl.DataFrame:
    """Table 1: name, the paper's program and its pages, the stand-in, its references and pages.

    The paper gives no numbers of references: they follow from pages ÷ faults at 64 MB, where only first uses fault.
    """
    rows = []
    for one in STAND_INS:
        faults = pl.read_parquet(directory / f"{one.name}-faults.parquet")
        paper_references = round(one.paper_pages / FAULTS_PER_MILLION[one.name][-1][0])
        own = faults.row(0, named=True)
        rows.append((one.name, one.paper, one.paper_pages, paper_references, one.what, own["pages"], own["references"]))
    columns = ["name", "paper", "paper_pages", "paper_million_references", "stand_in", "pages", "references"]
    return pl.DataFrame(rows, schema=columns, orient="row")


def markdown(directory: Path) -> Iterator[str]:
    """Tables 1 to 6 as a page's text, line by line; the paper's values in italics."""
    yield "| | paper: program | pages | million references | stand-in | pages | million references |"
    yield "|---|---|---:|---:|---|---:|---:|"
    for row in overview(directory).iter_rows(named=True):
        yield (
            f"| {row['name']} | {row['paper']} | {row['paper_pages']:,} | {row['paper_million_references']:,} "
            f"| {row['stand_in']} | {row['pages']:,} | {row['references'] / 1e6:,.0f} |"
        )
    for number, one in enumerate(STAND_INS, 2):
        faults = pl.read_parquet(directory / f"{one.name}-faults.parquet")
        found = tables.fault_table(faults, PAGE_BYTES)
        yield from ("", f"**Table {number}: {one.name}**", "")
        yield f"| {' | '.join(found[0])} |"
        yield f"|---:|{'---:|' * len(PAPER_COLOURS)}"
        for line, values in zip(found[1:], FAULTS_PER_MILLION[one.name], strict=True):
            yield f"| {' | '.join(line)} |"
            yield f"| *paper* | {' | '.join(f'*{value:.2f}*' for value in values)} |"
    effective = effective_memory(directory)
    yield from ("", "**Figure 2: effective memory utilisation (model)**", "")
    yield f"| | {' | '.join(map(str, PAPER_COLOURS))} |"
    yield f"|---|{'---:|' * len(PAPER_COLOURS)}"
    for part in effective.partition_by("program", maintain_order=True):
        cells = (f"{own:.3f} ({model:.3f})" for own, model in zip(part["m_eff"], part["m_eff_model"], strict=True))
        yield f"| {part['program'][0]} | {' | '.join(cells)} |"
    yield from ("", "**64 colours against one: changes of more than 1%, from 8 MiB up**", "")
    yield from changed(directory)


def changed(directory: Path) -> Iterator[str]:
    """The combinations that 64 colours change by more than 1%, from 8 MiB up (section 4.2), as lines of a table."""
    yield "| | memory | stand-in | paper |"
    yield "|---|---:|---:|---:|"
    for one in STAND_INS:
        faults = pl.read_parquet(directory / f"{one.name}-faults.parquet")
        rates = {row[:2]: row[2] for row in faults.select("memory_pages", "colours", "faults").iter_rows()}
        for mib, values in zip(PAPER_MEMORY_MIB, FAULTS_PER_MILLION[one.name], strict=True):
            pages = mib * (1 << 20) // PAGE_BYTES
            own, paper = rates[pages, 64] / rates[pages, 1] - 1, values[-1] / values[0] - 1
            if mib >= 8 and max(abs(own), abs(paper)) > 0.01:
                yield f"| {one.name} | {mib} MiB | {own:+.1%} | {paper:+.1%} |"


def effective_memory(directory: Path) -> pl.DataFrame:
    """Figure 2 of all stand-ins."""
    return pl.concat([pl.read_parquet(directory / f"{one.name}-effective.parquet") for one in STAND_INS])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.paging_paper", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("directory", type=Path)
    parser.add_argument("--instructions", type=int, default=1_000_000_000, help="of each program image")
    arguments = parser.parse_args()
    directory: Path = arguments.directory.resolve()
    directory.mkdir(parents=True, exist_ok=True)
    capture(directory, arguments.instructions)
    for one in STAND_INS:
        simulate(directory, one)
    tables.write_frame(overview(directory), directory / "table-1")
    tables.write_frame(effective_memory(directory), directory / "effective-memory")
    draw(directory)
    text = "\n".join(markdown(directory)) + "\n"
    (directory / "paper.md").write_text(text)
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
