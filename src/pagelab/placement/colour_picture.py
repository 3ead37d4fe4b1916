"""Draws a map's cache colours: pages by address in their colours, and the number of pages per colour."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import altair as alt

from .. import whole_file
from ..charts import render, theme
from ..errors import MachineError, cannot_write
from .model import AddressMap, Region, RegionColours
from .picture import unit_of
from .words import size

STRIPS = 5
"""At most this many regions are drawn, the largest first."""
_DRAWN_SHARE = 0.98
_WIDTH = 640
_HEIGHT = 120
_HISTOGRAM = 130


def write(found: AddressMap, path: Path) -> None:
    """Draws into a file; the suffix (svg, png or html) chooses the format.

    Raises :class:`MachineError` if no frames are known, :class:`PagelabError` if the file cannot be written.
    """
    drawing = render(specification(found), path.suffix.lower().removeprefix("."))
    try:
        whole_file.put(path, drawing)
    except OSError as error:
        raise cannot_write(path, error, "the picture") from error


def drawn(found: AddressMap) -> list[Region]:
    """The regions that get a strip, in the order of addresses: of memory that policies place, if there is any."""
    known = [region for region in found.regions if region.colours is not None and region.colours.grid is not None]
    placeable = [region for region in known if region.kind not in ("file", "shared", "special")] or known
    largest = sorted(placeable, key=_pages, reverse=True)
    total, so_far, chosen = sum(map(_pages, largest)), 0, set()
    for region in largest[:STRIPS]:
        if so_far >= _DRAWN_SHARE * total:
            break
        chosen.add(id(region))
        so_far += _pages(region)
    return [region for region in found.regions if id(region) in chosen]


def _pages(region: Region) -> int:
    return 0 if region.colours is None else region.colours.pages


def specification(found: AddressMap) -> dict[str, Any]:
    """The Vega-Lite specification."""
    strips = drawn(found)
    if not strips or found.colouring is None:
        raise MachineError("cannot draw colours: no frame numbers are known; run: sudo pagelab map …")
    count = found.colouring.colours
    data = _Data({})
    rows = [
        alt.hconcat(
            _strip(region, region.colours, count, data),
            _histogram(region.colours, count, data, last=region is strips[-1]),
            spacing=14,
        )
        for region in strips
        if region.colours is not None
    ]
    chart = alt.vconcat(*rows, spacing=10)
    spec: dict[str, Any] = chart.to_dict()
    spec["datasets"] = data.tables
    config = theme.config()
    config["view"] = {"stroke": "var(--rule)", "continuousWidth": _WIDTH}
    spec["config"] = config
    spec["title"] = {"text": _title(found), "subtitle": _subtitle(found, strips), "subtitleColor": "var(--soft)"}
    paper: dict[str, Any] = theme.on_paper(spec)
    return paper


@dataclass
class _Data:
    """Data tables by name. Inside a chart, each of thousands of rows would be checked against Vega-Lite's schema."""

    tables: dict[str, list[dict[str, Any]]]

    def add(self, rows: list[dict[str, Any]]) -> alt.NamedData:
        name = f"t{len(self.tables)}"
        self.tables[name] = rows
        return alt.NamedData(name=name)


def _title(found: AddressMap) -> str:
    command = found.command if len(found.command) <= 60 else found.command[:59] + "…"
    return f"Cache colours of {command} (process {found.pid})"


def _subtitle(found: AddressMap, strips: list[Region]) -> list[str]:
    colouring = found.colouring
    assert colouring is not None
    lines = [
        f"{colouring.colours} colours ({colouring.source}); left: each page at its address, in the row and hue of its "
        "colour;",
        "right: pages of each colour, and the even share as a line",
    ]
    rest = sum(map(_pages, found.regions)) - sum(map(_pages, strips))
    if rest:
        lines.append(f"not drawn: {size(rest * found.base_page_bytes)} in smaller regions and files")
    return lines


def _hue() -> alt.Scale:
    return alt.Scale(scheme="rainbow")


def _strip(region: Region, colours: RegionColours, count: int, data: _Data) -> alt.Chart:
    rows, unit = _cells(region, colours, count)
    span = (region.end - region.start) / unit[0]
    x = alt.X(
        "start:Q",
        scale=alt.Scale(domain=[0, span], nice=False),
        axis=alt.Axis(title=None, labelExpr=f"datum.label + ' {unit[1]}'", tickCount=5, grid=False, labelFlush=True),
    )
    name = PurePosixPath(region.name).name if region.kind == "file" else region.name
    label = [name if len(name) <= 30 else "…" + name[-29:], f"{region.start:#x}", f"{colours.pages:,} pages"]
    axis = alt.Axis(
        title=label,
        titleAngle=0,
        titleAlign="right",
        titleAnchor="middle",
        titleBaseline="middle",
        titleLimit=220,
        titlePadding=10,
        tickCount=4,
        grid=False,
    )
    marks = alt.Chart(data.add(rows)).mark_rect(stroke=None)
    encoded = marks.encode(
        x=x,
        x2="end:Q",
        y=_rows_axis(count, axis),
        y2="above:Q",
        color=alt.Color("low:Q", scale=_hue(), legend=None),
        opacity=alt.Opacity("share:Q", scale=alt.Scale(domain=[0, 1], range=[0.25, 1]), legend=None),
        tooltip=[alt.Tooltip("address:N"), alt.Tooltip("colours:N"), alt.Tooltip("pages:Q")],
    )
    strip: alt.Chart = encoded.properties(width=_WIDTH, height=_HEIGHT)
    return strip


def _rows_axis(count: int, axis: alt.Axis) -> alt.Y:
    return alt.Y("low:Q", scale=alt.Scale(domain=[0, count], nice=False), axis=axis)


def _cells(region: Region, colours: RegionColours, count: int) -> tuple[list[dict[str, Any]], tuple[int, str]]:
    """One rectangle for each bin and group of colours that has pages; opaque if all pages of the bin are resident."""
    grid = colours.grid
    assert grid is not None
    table, bin_bytes = grid
    unit = unit_of(region.end - region.start)
    rows = []
    in_row = count / table.shape[1]
    fullest = max(1, int(table.max()))
    for index, row in enumerate(table):
        start = index * bin_bytes
        end = min(start + bin_bytes, region.end - region.start)
        for group in row.nonzero()[0].tolist():
            low, above = group * in_row, (group + 1) * in_row
            rows.append(
                {
                    "start": start / unit[0],
                    "end": end / unit[0],
                    "low": low,
                    "above": above,
                    "share": round(int(row[group]) / fullest, 3),
                    "pages": int(row[group]),
                    "colours": f"{int(low)}" if in_row <= 1 else f"{int(low)}–{int(above) - 1}",
                    "address": f"{region.start + start:#x}–{region.start + end:#x}",
                }
            )
    return rows, unit


def _histogram(colours: RegionColours, count: int, data: _Data, *, last: bool) -> alt.LayerChart:
    rows = [
        {"low": colour, "above": colour + 1, "pages": pages, "colour": str(colour)}
        for colour, pages in enumerate(colours.counts)
    ]
    title = "pages of each colour" if last else None
    x = alt.X("pages:Q", axis=alt.Axis(title=title, tickCount=3, grid=False), scale=alt.Scale(zero=True))
    bars = (
        alt.Chart(data.add(rows))
        .mark_rect(stroke=None)
        .encode(
            x=x,
            x2=alt.datum(0),
            y=_rows_axis(count, alt.Axis(title=None, labels=False, ticks=False, grid=False)),
            y2="above:Q",
            color=alt.Color("low:Q", scale=_hue(), legend=None),
            tooltip=[alt.Tooltip("colour:N"), alt.Tooltip("pages:Q")],
        )
    )
    even = (
        alt.Chart(data.add([{"pages": colours.pages / count}]))
        .mark_rule(color="var(--ink)", strokeDash=[3, 2])
        .encode(x="pages:Q")
    )
    return theme.layered(bars, even).properties(width=_HISTOGRAM, height=_HEIGHT)
