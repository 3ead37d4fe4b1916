"""The look of every plot: colours, type and sizes, for the page (in light and dark mode) and for paper.

Charts name colours only as CSS variables, ``var(--…)``. On the page the style sheet gives them their light or dark
values, so a plot changes with the page and prints dark on white; for SVG and PNG files `on_paper` inserts the light
values. The eight condition colours were chosen so that readers with common colour-vision deficiencies can distinguish
them as well as eight colours allow; conditions also differ in shape and are labelled directly.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Literal

import altair as alt

Width = int | Literal["container"]

PAPER_WIDTH = 640
"""Width of exported plots in CSS pixels."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1c2127",
    "soft": "#5a636d",
    "rule": "#dde1e5",
    "zero": "#8a939c",
    "c0": "#59636e",
    "c1": "#0069a8",
    "c2": "#c14e00",
    "c3": "#00795a",
    "c4": "#9c4a86",
    "c5": "#8a6a00",
    "c6": "#3f55b5",
    "c7": "#a3283c",
    "s0": "#cfdde0",
    "s1": "#b2cdd1",
    "s2": "#94bcc2",
    "s3": "#77abb3",
    "s4": "#5b99a3",
    "s5": "#418693",
    "s6": "#297381",
    "s7": "#16606f",
    "s8": "#094d5b",
    "s9": "#033943",
}
DARK = {
    "paper": "#15181c",
    "ink": "#e6e8ea",
    "soft": "#a0a8b0",
    "rule": "#31363c",
    "zero": "#6f7881",
    "c0": "#a9b2bb",
    "c1": "#5fb2ec",
    "c2": "#f0884a",
    "c3": "#3dc39b",
    "c4": "#d98fc6",
    "c5": "#d9b23c",
    "c6": "#94a4f2",
    "c7": "#f07f8e",
    "s0": "#48595f",
    "s1": "#46626b",
    "s2": "#456c77",
    "s3": "#467683",
    "s4": "#4b838f",
    "s5": "#53919e",
    "s6": "#62a3af",
    "s7": "#79b6c0",
    "s8": "#97c9d1",
    "s9": "#bcdee3",
}

CONDITION_COLOURS = tuple(f"var(--c{i})" for i in range(8))
CONDITION_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "stroke")
PAGE_SIZES = (4 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 1 << 30)
"""Page sizes with a fixed colour in every picture, from smallest to largest; others have that of the next smaller."""

_FONT = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
_VARIABLE = re.compile(r"var\(--([a-z0-9]+)\)")


def page_size_colour(page_bytes: int) -> str:
    """The colour of a page size, stronger for larger pages. The report and the map both use it."""
    rank = max((i for i, size in enumerate(PAGE_SIZES) if size <= page_bytes), default=0)
    return f"var(--s{rank})"


def condition_colours(names: list[str]) -> dict[str, str]:
    """Policy → its colour, in the order of the design; the first (the baseline) is grey."""
    return {name: CONDITION_COLOURS[_slot(i)] for i, name in enumerate(names)}


def condition_shapes(names: list[str]) -> dict[str, str]:
    """Policy → the shape of its points, in addition to its colour."""
    return {name: CONDITION_SHAPES[_slot(i)] for i, name in enumerate(names)}


def _slot(index: int) -> int:
    return index if index < 8 else 1 + (index - 1) % 7


def config(font_size: int = 12) -> dict[str, Any]:
    """The Vega-Lite configuration of every chart."""
    return {
        "background": "transparent",
        "font": _FONT,
        "padding": {"left": 2, "right": 8, "top": 4, "bottom": 2},
        "view": {"stroke": None},
        "axis": {
            "labelColor": "var(--soft)",
            "titleColor": "var(--soft)",
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "gridColor": "var(--rule)",
            "domain": False,
            "ticks": False,
            "labelPadding": 6,
        },
        "axisY": {"labelColor": "var(--ink)"},
        "legend": {
            "labelColor": "var(--ink)",
            "titleColor": "var(--soft)",
            "labelFontSize": font_size,
            "titleFontSize": font_size,
            "titleFontWeight": "normal",
            "orient": "top",
            "symbolSize": 70,
        },
        "text": {"fontSize": font_size, "color": "var(--ink)"},
        "title": {"color": "var(--ink)", "fontSize": font_size + 1, "anchor": "start", "fontWeight": 600},
    }


def on_paper(spec: Any, colours: dict[str, str] | None = None) -> Any:
    """*spec* with every ``var(--…)`` replaced by its light value, for files that have no style sheet."""
    table = LIGHT if colours is None else colours
    if isinstance(spec, dict):
        return {key: on_paper(value, table) for key, value in spec.items()}
    if isinstance(spec, list):
        return [on_paper(value, table) for value in spec]
    if isinstance(spec, str) and spec == "transparent":
        return table["paper"]
    if isinstance(spec, str) and spec.startswith("var(--"):
        return _VARIABLE.sub(lambda match: table[match[1]], spec)
    return spec


def rows(values: list[dict[str, Any]]) -> alt.InlineData:
    """Data that are stored inside the specification."""
    return alt.InlineData(values=values)


def layered(*charts: alt.Chart) -> alt.LayerChart:
    """Charts drawn over each other, the first lowest."""
    return alt.LayerChart(layer=list(charts))


def finish(chart: alt.Chart | alt.LayerChart, width: Width, height: Any, labels: Iterable[str] = ()) -> dict[str, Any]:
    """The chart's specification with size and configuration; ``labels`` are those of its rows, at the left.

    It is checked against Vega-Lite's schema only for the page: for paper only the size differs, and checks take long.
    """
    spec: dict[str, Any] = chart.properties(width=width, height=height).to_dict(validate=width == "container")
    spec["config"] = config()
    spec["config"]["axisY"]["labelLimit"] = label_limit(width, 0.38)
    spec["config"]["legend"]["labelLimit"] = label_limit(width, 0.6)
    if width != "container":
        leave_room(spec, width, left=max(map(len, labels), default=0))
    spec.pop("$schema", None)
    return spec


def label_limit(width: Width, share: float) -> Any:
    """The width at which labels are cut, so that room for the picture remains; never in a file, which becomes wider."""
    return 0 if width != "container" else {"expr": f"max(110, {share} * containerSize()[0])"}


_CHARACTER = 6.6
"""Mean width in pixels of a label's character at 12 px, in the widest font that a reader may have."""


def leave_room(spec: dict[str, Any], width: int, *, left: int = 0, right: int = 0) -> None:
    """Gives a file's picture margins for labels of ``left`` and ``right`` characters.

    A file is drawn with the reader's fonts, which can be wider than those with which it was laid out.
    """
    before, after = left * _CHARACTER, right * _CHARACTER
    spec["width"] = max(width - round(before + after), round(0.45 * width)) if right else width
    spec["config"]["padding"] = {"left": 4 + 0.25 * before, "right": 8 + 0.25 * after, "top": 4, "bottom": 2}


def css_variables(colours: dict[str, str]) -> str:
    """The palette as CSS declarations."""
    return " ".join(f"--{name}: {value};" for name, value in colours.items())
