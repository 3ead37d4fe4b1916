"""Finds layouts of equal C and different R: a bound on the error of every model in C alone (after mosrange).

The program's tiles are put into several orders. In each order the first tiles get large pages, as many as bring
simulated C to the requested level. The resulting layouts have equal walk cycles, but in different places. They run
interleaved, beside 4K and 2M. A model in C alone predicts one R for layouts of one C, so its largest relative error on
two of them is at least (R₁ − R₂)/(R₁ + R₂), with R₁ the longer run time. Tiles leave small differences in C, so a model
may go with C from one layout to the other, by up to :data:`STEEP` times the slope from 2M to 4K; that much is taken off
R₁ − R₂ if C leads this way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from pagelab import layouts as making
from pagelab.errors import BadInputError, quoted
from pagelab.layouts import Footprint, Layout
from pagelab.model_run import document, executions
from pagelab.model_run.estimate import Noise, estimate
from pagelab.model_run.points import loss, usable
from pagelab.model_run.simulation import Simulator, key_of, refuse_changed
from pagelab.models.base import number
from pagelab.study.lock import DirectoryLock
from pagelab.study.progress import Progress, Silent, Titled, shown_duration
from pagelab.study.tools import Tools

SCHEMA: Literal["pagelab.model-range/1"] = "pagelab.model-range/1"
NEAR = 0.02
"""Largest distance of C from the level, relative to the span of C from 2M to 4K."""
STEEP = 2.0
"""Steepest slope of R in C that a model may have near the level, as a multiple of that from 2M to 4K."""
LEAST_REPEATS, MOST_REPEATS = 3, 50
_DRAWS = 4000


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RangedLayout(_Model):
    """One layout at the level."""

    layout: str
    c: float
    huge_bytes: int
    r_s: float
    """By the campaign's estimator, seconds."""
    repeats: int


class RangeDocument(_Model):
    """What ``pagelab model range --json`` prints."""

    schema_: Literal["pagelab.model-range/1"] = Field(default=SCHEMA, alias="schema")
    workload: str
    level: float
    """Of C between 2M (0) and 4K (1), as it was asked for."""
    c: float
    """Median of the layouts, which is as near to the level as tiles allow."""
    reached: float
    """Where ``c`` lies between 2M (0) and 4K (1)."""
    layouts: list[RangedLayout]
    apart: float
    """Largest difference in C, relative to its span from 2M to 4K."""
    floor: float
    """Least maximal relative error on these layouts of any model in C alone whose slope there has the sign of that from
    2M to 4K and is at most twice as steep."""
    noise: float
    """What that would be if R were the same in all of them: the median under the noise of the repeats."""
    noise_high: float
    """Its 95% quantile: a floor above it is none of noise."""
    r_4k_s: float
    r_2m_s: float


def ranged(
    directory: Path, level: float, minutes: float, tools: Tools, progress: Progress | None = None, seed: int = 1
) -> RangeDocument:
    """Finds the layouts, runs them (or the rest of them) in ``DIR/range-NN-DIGEST``, and compares.

    Raises `BadInputError` for directories without a campaign that has a trace, for levels with fewer than two layouts,
    and if the minutes are too few for :data:`LEAST_REPEATS` of each.
    """
    campaign = document.read(directory)
    if campaign is None or campaign.simulated is None or campaign.trial is None or campaign.plan is None:
        raise BadInputError(
            f"{directory}: it has no campaign with a trace and a plan; make it with: pagelab model run --into "
            f"{quoted(directory)} -- CMD"
        )
    if not 0.02 <= level <= 0.98:
        raise BadInputError(f"--at {100 * level:g}: a percentage within 2 ... 98 of the way from 2M to 4K")
    shown = progress or Silent()
    with DirectoryLock(directory, lambda who: f"{directory} is in use by {who}; wait for it"):
        executions.refuse_other_machine(directory, campaign, tools)
        refuse_changed(campaign.simulated, directory)
        simulator = Simulator(directory, campaign.simulated, shown.note)
        space = Footprint(tuple(campaign.footprint))
        shown.note(f"simulate: layouts of equal C at {level:.0%}")
        layouts, c, ends = at_level(space, simulator, level, seed)
        tiles = hashlib.sha256("\n".join(f"{one.name} {key_of(one)}" for one in layouts).encode()).hexdigest()[:8]
        own = directory / f"range-{100 * level:g}-{tiles}"
        runs = len(layouts) + 2
        repeats = min(MOST_REPEATS, int(60 * minutes / (runs * campaign.plan.run_s)))
        if repeats < LEAST_REPEATS:
            least = LEAST_REPEATS * runs * campaign.plan.run_s
            raise BadInputError(
                f"{LEAST_REPEATS} executions of {runs} layouts take {shown_duration(least)}; give it --minutes "
                f"{np.ceil(least / 6) / 10:g}"
            )
        spec = own / "study.toml"
        if not (own / "study.db").exists():
            wanted = [*making.anchors(space), *layouts]
            spec = executions.study(campaign.asked, own, wanted, repeats, counting=False, seed=seed)
        executions.run(spec, own, tools, Titled(shown, own.name, notes=False), at_least=repeats)
        return _compared(campaign, own, layouts, c, level, ends, shown)


def at_level(
    space: Footprint, simulator: Simulator, level: float, seed: int
) -> tuple[list[Layout], list[float], tuple[float, float]]:
    """Distinct layouts whose C is near ``level`` between 2M (0) and 4K (1), the C of each, and that of 2M and 4K.

    Raises `BadInputError` if there are fewer than two.
    """
    large, small = (one.c for one in simulator.counts(making.anchors(space)[::-1]))
    if small <= large:
        raise BadInputError(
            "C is the same in 4K and in 2M pages, so no layout has another C; give the program a larger input"
        )
    wanted = large + level * (small - large)
    found: dict[tuple[object, ...], tuple[Layout, float]] = {}
    misses = simulator.profile(space).misses
    for name, order in _orders(space, misses, seed):
        layout, c = _first_at(space, simulator, name, order, wanted)
        if not found:
            # With few tiles no layout may reach the level; then the others aim at the C of the first order's nearest.
            wanted = c
        if abs(c - wanted) <= NEAR * (small - large):
            found.setdefault(layout.tiles, (layout, c))
    if len(found) < 2:
        raise BadInputError(
            f"{len(found)} layouts have a C within {NEAR:.0%} of the level: tiles are too few, or one has most of the "
            "misses; try another level: --at PERCENT"
        )
    return [layout for layout, _ in found.values()], [c for _, c in found.values()], (large, small)


def _orders(space: Footprint, misses: NDArray[np.float64], seed: int) -> Iterator[tuple[str, NDArray[np.int64]]]:
    """Names and orders in which tiles get large pages."""
    places = np.arange(len(space))
    yield "upwards", places
    yield "downwards", places[::-1]
    yield "hottest-first", np.argsort(-misses, kind="stable")
    yield "coldest-first", np.argsort(misses, kind="stable")
    yield "even-first", np.concatenate([places[::2], places[1::2]])
    random = np.random.default_rng(seed)
    for i in range(2):
        yield f"window-{i}", np.roll(places, -int(random.integers(1, max(2, len(places)))))
        yield f"scattered-{i}", random.permutation(places)


def _first_at(
    space: Footprint,
    simulator: Simulator,
    name: str,
    order: NDArray[np.int64],
    wanted: float,
) -> tuple[Layout, float]:
    """The layout, with its C, whose first tiles in large pages bring C nearest to ``wanted``; by bisection."""

    def at(count: int) -> tuple[Layout, float]:
        layout = space.at(name, order[:count].tolist())
        return layout, simulator.counts([layout])[0].c

    low, high = 0, len(order)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if at(middle)[1] > wanted else (low, middle)
    return min((at(low), at(high)), key=lambda pair: abs(pair[1] - wanted))


def least_error(r: NDArray[np.float64], c: NDArray[np.float64], slope: float) -> float:
    """Least maximal relative error on layouts of nearly equal C, if R may go with C by 0 to ``slope``.

    For predictions with rⱼ − rᵢ ≤ d, the larger of both relative errors is at least (Rⱼ − Rᵢ − d)/(Rⱼ + Rᵢ).
    """
    may = np.maximum(0.0, slope * (c[None, :] - c[:, None]))
    errors = (r[None, :] - r[:, None] - may) / (r[None, :] + r[:, None])
    return float(max(0.0, errors.max()))


def _compared(
    campaign: document.Campaign,
    own: Path,
    layouts: list[Layout],
    c: list[float],
    level: float,
    ends: tuple[float, float],
    progress: Progress,
) -> RangeDocument:
    assert campaign.trial is not None
    how = campaign.asked.estimator
    runs = executions.read(own, campaign.trial.window)
    times: dict[str, list[float]] = {}
    for name in dict.fromkeys(one.layout for one in runs):
        its = [one for one in runs if one.layout == name]
        good, left_out = usable(its, counted=False)
        lost = loss(name, len(its), left_out)
        if lost:
            progress.note(lost)
        times[name] = [one.r_s for one in good if one.r_s]
    kept = {name: values for name, values in times.items() if len(values) >= 2}
    rows = [
        RangedLayout(
            layout=layout.name,
            c=own_c,
            huge_bytes=layout.huge_bytes,
            r_s=estimate(np.array(kept[layout.name]), how),
            repeats=len(kept[layout.name]),
        )
        for layout, own_c in zip(layouts, c, strict=True)
        if layout.name in kept
    ]
    if len(rows) < 2 or not {"4K", "2M"} <= kept.keys():
        raise BadInputError(
            "fewer than two layouts ran well enough to be compared; "
            f"every execution: pagelab study status {quoted(own)}"
        )
    found = Noise.of(kept, how).errors()
    errors, freedom = (np.array([found[row.layout][i] for row in rows]) for i in (0, 1))
    drawn = 1 + errors * np.random.default_rng(1).standard_t(freedom, size=(_DRAWS, len(rows)))
    alike = np.ptp(drawn, axis=1) / (drawn.max(axis=1) + drawn.min(axis=1))
    r, values = np.array([row.r_s for row in rows]), np.array([row.c for row in rows])
    large, small = (estimate(np.array(kept[size]), how) for size in ("2M", "4K"))
    span = ends[1] - ends[0]
    return RangeDocument(
        workload=campaign.workload,
        level=level,
        c=float(np.median(values)),
        reached=float(np.median(values) - ends[0]) / span,
        layouts=sorted(rows, key=lambda row: row.r_s),
        apart=float(np.ptp(values)) / span,
        floor=least_error(r, values, STEEP * (small - large) / span),
        noise=float(np.median(alike)),
        noise_high=float(np.quantile(alike, 0.95)),
        r_4k_s=small,
        r_2m_s=large,
    )


def text(found: RangeDocument) -> str:
    """The comparison as printed text."""
    low, high = found.layouts[0], found.layouts[-1]
    told = "more than noise" if found.floor > found.noise_high else "no more than noise"
    asked = "" if abs(found.reached - found.level) <= NEAR else f"; {found.level:.0%} was asked for"
    lines = [
        f"any model in C alone is off by at least {found.floor:.1%} on one of {len(found.layouts)} layouts of nearly "
        f"equal C: {told} ({found.noise:.1%}, up to {found.noise_high:.1%})",
        f"their C is {number(found.c)}, {found.reached:.0%} of the way from 2M to 4K{asked}",
        "",
        f"{high.layout} takes {high.r_s:.4g} s, {low.layout} {low.r_s:.4g} s; 4K takes {found.r_4k_s:.4g} s, 2M "
        f"{found.r_2m_s:.4g} s",
        f"{'layout':<16} {'C':>12} {'2M pages':>10} {'R':>10}",
    ]
    lines += [
        f"{row.layout:<16} {row.c:>12.4g} {f'{row.huge_bytes >> 20} MiB':>10} {f'{row.r_s:.4g} s':>10}"
        for row in found.layouts
    ]
    lines.append(
        f"their C differs by {found.apart:.1%} of the way from 2M to 4K at most; R may go with it, up to "
        f"{STEEP:g} times as steeply as from 2M to 4K"
    )
    return "\n".join(lines)
