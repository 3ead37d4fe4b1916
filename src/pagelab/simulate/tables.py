"""PAGING's tables and figures, from the frames of a simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagelab import whole_file
from pagelab.errors import cannot_write

if TYPE_CHECKING:
    import polars as pl

    from pagelab.simulate.page_faults import Curves


def size_name(size_bytes: int) -> str:
    """``1 MiB``, ``1.5 GiB``."""
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size_bytes >= 1 << shift:
            return f"{size_bytes / (1 << shift):.4g} {unit}"
    return f"{size_bytes} B"


def fault_table(faults: pl.DataFrame, page_bytes: int) -> list[list[str]]:
    """PAGING's Tables 2 to 6: a heading, then one line per memory size with a column per colour count; faults × 10⁻⁶.

    Estimates are given with half the width of their 95% interval.
    """
    from pagelab.simulate.sampling import T95

    colours = sorted(set(faults["colours"]))
    cells = {
        (row["memory_pages"], row["colours"]): f"{row['faults_per_million']:.2f}"
        + (f" ± {T95 * row['standard_error']:.2f}" if row.get("standard_error") is not None else "")
        for row in faults.iter_rows(named=True)
    }
    lines = [["memory", *map(str, colours)]]
    for memory in sorted({memory for memory, _ in cells}):
        lines.append([size_name(memory * page_bytes), *(cells.get((memory, count), "–") for count in colours)])
    return lines


def relative_faults(faults: pl.DataFrame) -> pl.DataFrame:
    """Figures 3 to 7: each fault rate over that of the fewest colours at the same memory size; column ``relative``."""
    import polars as pl

    keys = ["policy", "memory_pages"]
    fewest = faults.filter(pl.col("colours") == faults["colours"].min())
    base = fewest.select(*keys, base="faults")
    joined = faults.join(base, on=keys, how="inner", maintain_order="left")
    return joined.with_columns(relative=pl.col("faults") / pl.col("base")).drop("base")


def relative_figure(faults: pl.DataFrame, page_bytes: int, title: str) -> dict[str, Any]:
    """The Vega-Lite specification of :func:`relative_faults`: one line per memory size, at most eight; neighbouring
    sizes with the same line share it."""
    from pagelab.charts.marks import LINES, Line, over_colours

    groups: list[tuple[list[int], list[tuple[int, float]]]] = []
    for part in (
        relative_faults(faults).sort("memory_pages", "colours").partition_by("memory_pages", maintain_order=True)
    ):
        points = list(zip(part["colours"], part["relative"], strict=True))
        # Lines on top of each other are one: where memory holds the program, all are alike.
        if groups and groups[-1][1] == points:
            groups[-1][0].append(part["memory_pages"][0])
        else:
            groups.append(([part["memory_pages"][0]], points))
    lines = [Line(_sizes(groups[at][0], page_bytes), groups[at][1]) for at in chosen(range(len(groups)), LINES)]
    return over_colours(lines, title, "faults, relative to the fewest colours", "memory", around=(0.95, 1.05))


def _sizes(memory: Sequence[int], page_bytes: int) -> str:
    """``4 MiB``, or ``4 MiB to 64 MiB``."""
    return " to ".join(size_name(pages * page_bytes) for pages in dict.fromkeys((memory[0], memory[-1])))


def chosen(values: Sequence[int], count: int) -> list[int]:
    """At most ``count`` of the values, evenly spread, the first and the last among them."""
    if len(values) <= count:
        return list(values)
    return [values[round(i * (len(values) - 1) / (count - 1))] for i in range(count)]


def write_figure(spec: dict[str, Any], stem: Path) -> list[Path]:
    """The figure as SVG, PNG and a standalone page, in one directory; raises :class:`PagelabError`."""
    from pagelab.charts import render, theme

    paper = theme.on_paper(spec)
    written = []
    for kind in ("svg", "png", "html"):
        path = stem.with_suffix(f".{kind}")
        try:
            whole_file.put(path, render(paper, kind))
        except OSError as error:
            raise cannot_write(path, error) from error
        written.append(path)
    return written


def write_frame(frame: pl.DataFrame, stem: Path) -> list[Path]:
    """The frame as CSV and Parquet beside each other; raises :class:`PagelabError`."""
    csv, parquet = stem.with_suffix(".csv"), stem.with_suffix(".parquet")
    for path in (csv, parquet):
        try:
            whole_file.put_table(path, frame)
        except OSError as error:
            raise cannot_write(path, error) from error
    return [csv, parquet]


def effective_memory(programs: Mapping[str, Curves]) -> pl.DataFrame:
    """Figure 2: M_eff of each trace, simulated and modelled, with a memory of as many pages as the program has.

    With c colours that memory has k = ⌊pages / c⌋ frames of each. Columns: program, colours, pages_per_colour,
    memory_pages, m_eff, m_eff_model (the model's third convention, as the simulation counts).
    """
    import polars as pl

    from pagelab.simulate import analytical_model

    rows = []
    for name, found in programs.items():
        utilisation = found.utilisation()
        for count in sorted(set(utilisation["colours"])):
            pages = found.pages // count
            if pages == 0:
                continue
            at = utilisation.filter(pl.col("colours") == count, pl.col("pages_per_colour") == pages)
            rows.append(
                (name, count, pages, count * pages, at["m_eff"][0], analytical_model.effective_memory(count, pages))
            )
    schema = {
        "program": pl.String,
        "colours": pl.Int64,
        "pages_per_colour": pl.Int64,
        "memory_pages": pl.Int64,
        "m_eff": pl.Float64,
        "m_eff_model": pl.Float64,
    }
    return pl.DataFrame(rows, schema=schema, orient="row")


def effective_figure(table: pl.DataFrame, title: str) -> dict[str, Any]:
    """The Vega-Lite specification of :func:`effective_memory`: two lines per program, the model's dashed."""
    from pagelab.charts.marks import Line, over_colours

    lines = []
    for part in table.partition_by("program", maintain_order=True):
        for column, dashed in (("m_eff", False), ("m_eff_model", True)):
            points = list(zip(part["colours"], part[column], strict=True))
            lines.append(Line(part["program"][0], points, dashed))
    return over_colours(lines, title, "effective memory utilisation", "program")


def model_figure(table: pl.DataFrame, page_bytes: int) -> dict[str, Any]:
    """Figure 1: M_eff of :func:`pagelab.simulate.analytical_model.table`, one line per memory size, at most eight."""
    import polars as pl

    from pagelab.charts.marks import LINES, Line, over_colours

    lines = []
    for memory in chosen(sorted(set(table["memory_pages"])), LINES):
        rows = table.filter(pl.col("memory_pages") == memory).sort("colours")
        points = list(zip(rows["colours"], rows["m_eff"], strict=True))
        lines.append(Line(size_name(memory * page_bytes), points, dashed=True))
    return over_colours(lines, "modelled effective memory utilisation", "effective memory utilisation", "memory")
