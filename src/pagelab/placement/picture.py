"""Draws a map: one strip per region, the address space from left to right, coloured by page size.

A strip has at most :data:`BINS` bins, so that it stays legible for any number of gigabytes. In each bin, the height of
a colour is the share of the bin's addresses that pages of that size back; the empty part is not resident.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt

from .. import whole_file
from ..charts import PICTURE_FORMATS, render, theme
from ..errors import BadInputError, PagelabError, cannot_write
from .model import AddressMap, Region
from .words import page_size, size

BINS = 256
STRIPS = 14
"""At most this many regions are drawn; the picture gives the number of the others."""
_DRAWN_SHARE = 0.995
"""The largest regions are drawn until they have this share of the resident memory."""
_WIDTH = 720
_STRIP_HEIGHT = 30
_UNKNOWN = "var(--zero)"

Shares = dict[int, npt.NDArray[np.float64]]
"""Page size → the share of each bin's addresses that pages of that size back."""


def write(found: AddressMap, path: Path) -> None:
    """Draws the map into a file; the suffix chooses the format.

    Raises :class:`BadInputError` for other suffixes, :class:`PagelabError` if the file cannot be written.
    """
    kind = path.suffix.lower().removeprefix(".")
    if kind not in PICTURE_FORMATS:
        raise BadInputError(f"--picture {path}: unknown kind of picture; allowed: a name in .svg, .png or .html")
    drawing = render(specification(found), kind)
    try:
        whole_file.put(path, drawing)
    except OSError as error:
        raise cannot_write(path, error, "the picture") from error


def bins(region: Region, count: int = BINS) -> tuple[Shares, int]:
    """Shares by page size in each bin of a region, and the bytes of a bin (a multiple of the base page).

    Bins cover ``[region.start, region.end)``; the last one may reach beyond.
    """
    span = region.end - region.start
    width = max(4096, -(-span // count) + 4095 & ~4095)
    number = -(-span // width)
    covered: Shares = {}
    for mapping in region.mappings:
        for tile in mapping.tiles:
            into = covered.setdefault(tile.page_bytes, np.zeros(number))
            _add(into, tile.start - region.start, tile.end - region.start, width)
    return {page_bytes: into / width for page_bytes, into in sorted(covered.items())}, width


def _add(into: npt.NDArray[np.float64], start: int, end: int, width: int) -> None:
    """Adds the bytes of ``[start, end)`` to the bins they lie in."""
    first, last = start // width, (end - 1) // width
    if first == last:
        into[first] += end - start
        return
    into[first] += (first + 1) * width - start
    into[first + 1 : last] += width
    into[last] += end - last * width


def drawn(found: AddressMap) -> tuple[list[Region], list[Region]]:
    """The regions that get a strip, in the order of addresses, and the others."""
    largest = sorted(found.regions, key=lambda region: region.resident_bytes, reverse=True)
    total, so_far, chosen = sum(region.resident_bytes for region in largest), 0, set()
    for region in largest[:STRIPS]:
        if so_far >= _DRAWN_SHARE * total:
            break
        chosen.add(id(region))
        so_far += region.resident_bytes
    strips = [region for region in found.regions if id(region) in chosen]
    return strips, [region for region in found.regions if id(region) not in chosen]


def specification(found: AddressMap) -> dict[str, Any]:
    """The Vega-Lite specification of the picture."""
    strips, rest = drawn(found)
    shares = [(region, *bins(region)) for region in strips]
    sizes = sorted({page_bytes for _, by_size, _ in shares for page_bytes in by_size})
    if not strips:
        raise PagelabError(f"process {found.pid} has no resident memory to draw")
    charts = [_strip(region, by_size, width, sizes) for region, by_size, width in shares]
    chart = alt.vconcat(*charts, spacing=6).resolve_scale(x="independent", color="shared")
    spec: dict[str, Any] = chart.to_dict()
    config = theme.config()
    config["view"] = {"stroke": "var(--rule)", "continuousWidth": _WIDTH}
    spec["config"] = config
    spec["title"] = {"text": _title(found), "subtitle": _subtitle(found, rest), "subtitleColor": "var(--soft)"}
    paper: dict[str, Any] = theme.on_paper(spec)
    return paper


def _title(found: AddressMap) -> str:
    command = found.command if len(found.command) <= 60 else found.command[:59] + "…"
    return f"Memory of {command} (process {found.pid})"


def _subtitle(found: AddressMap, rest: list[Region]) -> list[str]:
    resident = found.resident_bytes
    moment = {"exit": "just before it ended", "peak": "when it had most"}.get(found.moment, found.taken_at)
    scale = "each strip is one region from its first to its last address, at its own scale"
    lines = [f"{size(resident)} resident, {moment}; {scale}"]
    left_out = sum(region.resident_bytes for region in rest)
    if left_out:
        lines.append(f"not drawn: {len(rest)} regions with {size(left_out)} resident")
    if not found.folios:
        lines.append("sizes between the base page and 2M are not distinguished without root")
    return lines


def _strip(region: Region, by_size: Shares, width: int, sizes: list[int]) -> alt.Chart:
    rows = _rows(region, by_size, width)
    span = region.end - region.start
    unit, name = unit_of(span)
    label = _label(region)
    x = alt.X(
        "start:Q",
        scale=alt.Scale(domain=[0, span / unit], nice=False),
        axis=alt.Axis(title=None, labelExpr=f"datum.label + ' {name}'", tickCount=6, grid=False, labelFlush=True),
    )
    y = alt.Y(
        "low:Q",
        scale=alt.Scale(domain=[0, 1]),
        axis=alt.Axis(
            title=label,
            titleAngle=0,
            titleAlign="right",
            titleAnchor="middle",
            titleBaseline="middle",
            titleColor="var(--ink)",
            titleLimit=260,
            titlePadding=8,
            titleY=_STRIP_HEIGHT / 2 - 6,
            labels=False,
            grid=False,
        ),
    )
    colour = alt.Color(
        "size:N",
        scale=alt.Scale(
            domain=[page_size(page_bytes) for page_bytes in sizes],
            range=[theme.page_size_colour(page_bytes) if page_bytes else _UNKNOWN for page_bytes in sizes],
        ),
        legend=alt.Legend(title="page size", titleOrient="left", symbolType="square", orient="top"),
    )
    tooltip = [
        alt.Tooltip("address:N"),
        alt.Tooltip("size:N", title="page size"),
        alt.Tooltip("percent:N", title="of this bin"),
    ]
    marks = alt.Chart(theme.rows(rows)).mark_rect(stroke=None)
    encoded = marks.encode(x=x, x2="end:Q", y=y, y2="high:Q", color=colour, tooltip=tooltip)
    strip: alt.Chart = encoded.properties(width=_WIDTH, height=_STRIP_HEIGHT)
    return strip


def _label(region: Region) -> list[str]:
    name = PurePosixPath(region.name).name if region.kind == "file" else region.name
    name = name if len(name) <= 34 else "…" + name[-33:]
    return [name, f"{region.start:#x} · {size(region.resident_bytes)} of {size(region.mapped_bytes)}"]


def _rows(region: Region, by_size: Shares, width: int) -> list[dict[str, Any]]:
    """One rectangle per page size and run of equal bins; positions in the strip's unit."""
    unit, _ = unit_of(region.end - region.start)
    rows = []
    base = np.zeros(len(next(iter(by_size.values()))))
    # Large pages lie at the bottom, so that a mosaic reads as a skyline.
    for page_bytes in sorted(by_size, reverse=True):
        share = by_size[page_bytes]
        for first, last in _equal(base, share):
            if share[first] <= 0:
                continue
            start, end = first * width, min(last * width, region.end - region.start)
            rows.append(
                {
                    "start": start / unit,
                    "end": end / unit,
                    "low": round(float(base[first]), 5),
                    "high": round(float(base[first] + share[first]), 5),
                    "size": page_size(page_bytes),
                    "address": f"{region.start + start:#x}–{region.start + end:#x}",
                    "percent": f"{share[first]:.1%}",
                }
            )
        base = base + share
    return rows


def _equal(base: npt.NDArray[np.float64], share: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Runs of bins with the same lower edge and height."""
    same = (np.abs(np.diff(base)) < 1e-9) & (np.abs(np.diff(share)) < 1e-9)
    edges = np.flatnonzero(~same) + 1
    starts, ends = np.append(0, edges), np.append(edges, len(share))
    return [(int(start), int(end)) for start, end in zip(starts, ends, strict=True)]


def unit_of(span: int) -> tuple[int, str]:
    """Bytes and name of the unit for the labels of an axis over this many bytes."""
    if span >= 4 << 30:
        return 1 << 30, "GiB"
    return (1 << 20, "MiB") if span >= 4 << 20 else (1 << 10, "KiB")
