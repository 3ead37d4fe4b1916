"""Parts of charts that do not depend on a study: look, marks and rows; and renders pictures."""

from __future__ import annotations

from typing import Any

from pagelab.terminal import plain_values

PICTURE_FORMATS = ("svg", "png", "html")
"""Suffixes of the files that pictures can be rendered to."""


def render(spec: dict[str, Any], kind: str) -> bytes:
    """The picture in one of :data:`PICTURE_FORMATS`; HTML needs no other files and no network."""
    import vl_convert

    spec = plain_values(spec)
    if kind == "svg":
        return vl_convert.vegalite_to_svg(spec).encode()
    if kind == "png":
        drawing: bytes = vl_convert.vegalite_to_png(spec, scale=2)
        return drawing
    return vl_convert.vegalite_to_html(spec, bundle=True).encode()
