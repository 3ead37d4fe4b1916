"""A picture of a profile and its hot regions along the concatenated pools."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from pagelab import whole_file
from pagelab.charts import PICTURE_FORMATS, render, theme
from pagelab.errors import BadInputError, cannot_write
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.profile import Profile
from pagelab.layouts.windows import SHARES, hot_region

BINS = 512
"""Bars at most: tiles are summed up beyond."""


def specification(profile: Profile, footprint: Footprint, shares: Sequence[float] = SHARES) -> dict[str, Any]:
    """A Vega-Lite specification: misses along the space, one colour per pool, and a bar for each hot region."""
    width = -(-len(footprint) // BINS)
    unit = footprint.page_bytes / (1 << 20)
    rows = []
    for start in range(0, len(footprint), width):
        end = min(start + width, len(footprint))
        pool, offset = footprint.tiles[start]
        misses = float(profile.misses[start:end].sum())
        rows.append(
            {
                "zero": 0,
                "start": start * unit,
                "end": end * unit,
                "pool": pool,
                "offset": f"{offset:#x}",
                "misses": misses,
            }
        )
    regions = [(share, hot_region(profile.misses, share)) for share in shares]
    hot = [
        {"share": f"{share:.0%}", "start": found[0] * unit, "end": found[1] * unit}
        for share, found in regions
        if found is not None
    ]
    pools = list(footprint.pools)
    domain = alt.Scale(domain=[0, len(footprint) * unit], nice=False)
    place = alt.X("start:Q", title="MiB of the concatenated pools", scale=domain)
    bars = (
        alt.Chart(theme.rows(rows))
        .mark_rect()
        .encode(
            x=place,
            x2="end:Q",
            y=alt.Y("zero:Q", title=f"misses ({profile.source})"),
            y2="misses:Q",
            color=alt.Color(
                "pool:N", title=None, scale=alt.Scale(domain=pools, range=theme.CONDITION_COLOURS[: len(pools)])
            ),
            tooltip=["pool:N", "offset:N", "misses:Q"],
        )
        .properties(width=720, height=180)
    )
    strips = (
        alt.Chart(theme.rows(hot))
        .mark_bar(color="var(--ink)")
        .encode(x=place, x2="end:Q", y=alt.Y("share:N", title="hot region"), tooltip=["share:N", "start:Q", "end:Q"])
        .properties(width=720, height=18 * max(len(hot), 1))
    )
    chart: dict[str, Any] = alt.vconcat(bars, strips).resolve_scale(x="shared").to_dict()
    chart["config"] = theme.config()
    paper: dict[str, Any] = theme.on_paper(chart)
    return paper


def write(profile: Profile, footprint: Footprint, path: Path) -> None:
    """Draws it into a file; the suffix chooses the format. Raises :class:`BadInputError` for other suffixes."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in PICTURE_FORMATS:
        raise BadInputError(f"--picture {path}: allowed: a name in {', '.join(PICTURE_FORMATS)}")
    if not np.any(profile.misses):
        raise BadInputError(f"--picture {path}: the profile has no misses in the program's pools")
    try:
        whole_file.put(path, render(specification(profile, footprint), kind))
    except OSError as error:
        raise cannot_write(path, error, "the picture") from error
