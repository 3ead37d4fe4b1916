"""The data of one workload: run time and translation counts of its layouts, with checks and warnings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from pagelab.errors import BadInputError

from .noise import moderated

Array = NDArray[np.float64]
Source = Literal["counted", "simulated"]
Role = Literal["train", "test"]
CyclesKind = Literal["sum", "active"]

INPUTS = ("h", "m", "c")
LABELS = {"h": "H", "m": "M", "c": "C"}
FEWEST = 5
"""Least number of training layouts for any fit: a cubic passes through any four points."""
TEN_TO_ONE = 10
FEWEST_TESTS = 12
"""With fewer test layouts their largest error says little about other layouts."""
_MOST_REPEATS = 1e15
LEAST, LARGEST = 1e-30, 1e30
"""R and counts, if not 0, lie within; their cubes and squares are then no infinity and no zero."""
FAR_OFF = 100.0
"""A run time so many times above or below the median is probably in another unit."""
COLLINEAR = 1e-8
"""An input is dropped as redundant if the others leave less than this share of its variance unexplained."""


@dataclass(frozen=True)
class PointsWarning:
    """A warning about the points for readers of their models; ``kind`` is a stable name."""

    kind: str
    message: str


@dataclass(frozen=True)
class Points:
    """The layouts of one workload: one row per layout, arrays of shape (layouts,).

    ``r``: run time in cycles, the mean over the repeats; ``h``: hits in the second-level TLB; ``m``: its misses;
    ``c``: walk cycles. ``h`` and ``m`` may be None; models in C alone do without. Make points with :meth:`of`, which
    checks them.
    """

    workload: str
    layouts: tuple[str, ...]
    r: Array
    c: Array
    h: Array | None = None
    m: Array | None = None
    roles: tuple[Role, ...] = ()
    anchors: Mapping[str, str] = field(default_factory=dict)
    """Page size (``4K``, ``2M``) → the layout that has only pages of this size."""
    r_sd: Array | None = None
    """Standard deviation of R over the repeats of a layout, in cycles; NaN where it is unknown."""
    repeats: NDArray[np.int64] | None = None
    r_error: Array | None = None
    """Standard error of each R, in cycles, if R is not the mean of its repeats; None: from ``r_sd`` and ``repeats``."""
    source: Source = "counted"
    """Source of H, M and C. R is always measured."""
    cycles: CyclesKind = "sum"
    """``sum``: walk cycles summed over all walkers, the paper's C; ``active``: cycles with at least one walk."""
    walkers: int = 2
    extra: Mapping[str, Array] = field(default_factory=dict)
    """Further columns of the table, by name; no model uses them."""
    told: tuple[PointsWarning, ...] = ()
    """What was found in the table that the points were read from."""

    @classmethod
    def of(cls, workload: str, r: Any, c: Any, *, layouts: Sequence[str] | None = None, **others: Any) -> Points:
        """Points from array-likes; raises what :meth:`validate` raises."""
        values: dict[str, Any] = {"r": _array(r), "c": _array(c)}
        for name in ("h", "m", "r_sd", "r_error"):
            if others.get(name) is not None:
                values[name] = _array(others.pop(name))
        count = values["r"].size
        names = tuple(layouts) if layouts is not None else tuple(f"layout{i + 1}" for i in range(count))
        if others.get("repeats") is not None:
            others["repeats"] = _whole(workload, names, _array(others["repeats"]))
        roles = tuple(others.pop("roles", None) or ("train",) * count)
        extra = {name: _array(value) for name, value in dict(others.pop("extra", None) or {}).items()}
        made = cls(workload=workload, layouts=names, roles=roles, extra=extra, **values, **others)
        made.validate()
        return made

    def __len__(self) -> int:
        return len(self.layouts)

    @property
    def inputs(self) -> dict[str, Array]:
        """The inputs that are known, in the order H, M, C."""
        found = {"h": self.h, "m": self.m, "c": self.c}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def r_se(self) -> Array | None:
        """Standard error of each R, in cycles; None unless more than half of the layouts have a spread of their own.

        It is a relative spread over √repeats. With few repeats the spread is moderated towards that
        of all layouts (:mod:`.noise`), and layouts without one have that.
        """
        if self.r_error is not None:
            return self.r_error
        if self.r_sd is None or self.repeats is None or 2 * np.count_nonzero(self.spread_known) <= len(self):
            return None
        return self.r * np.sqrt(self.run_variances[0] / self.repeats)

    @property
    def spread_known(self) -> NDArray[np.bool_]:
        """Which layouts have a spread over repeats of their own."""
        if self.r_sd is None or self.repeats is None:
            return np.zeros(len(self), dtype=bool)
        known: NDArray[np.bool_] = np.isfinite(self.r_sd) & (self.repeats >= 2)
        return known

    @property
    def run_variances(self) -> tuple[Array, Array]:
        """Moderated variances of single runs, relative to R, and their degrees of freedom; ValueError if none is
        known."""
        if self.r_sd is None or self.repeats is None:
            raise ValueError("the spread over repeats is not known")
        return moderated((self.r_sd / self.r) ** 2, self.repeats)

    def anchor(self, size: str) -> int | None:
        """Row of the layout with only pages of this size; None if there is none."""
        name = self.anchors.get(size)
        return None if name is None else self.layouts.index(name)

    def take(self, rows: Any) -> Points:
        """Points of these rows, in this order. An anchor is kept if its layout is."""
        index = np.arange(len(self))[rows]
        names = tuple(self.layouts[i] for i in index)
        return replace(
            self,
            layouts=names,
            roles=tuple(self.roles[i] for i in index),
            anchors={size: name for size, name in self.anchors.items() if name in names},
            r=self.r[index],
            c=self.c[index],
            h=None if self.h is None else self.h[index],
            m=None if self.m is None else self.m[index],
            r_sd=None if self.r_sd is None else self.r_sd[index],
            repeats=None if self.repeats is None else self.repeats[index],
            r_error=None if self.r_error is None else self.r_error[index],
            extra={name: values[index] for name, values in self.extra.items()},
        )

    @property
    def places(self) -> NDArray[np.int64]:
        """A number for each layout, the same for those of equal counts (:func:`numbered`)."""
        return numbered(np.column_stack(list(self.inputs.values())))

    def role(self, role: Role) -> Points:
        """Points of the layouts with this role."""
        return self.take([i for i, one in enumerate(self.roles) if one == role])

    def validate(self) -> None:
        """Raises `BadInputError` for points that no model can be fitted to: wrong shapes, NaN, impossible counts."""
        _check_shapes(self)
        _check_values(self)
        _check_possible(self)

    def warnings(self) -> list[PointsWarning]:
        """The warnings that must accompany a fit of these points."""
        return [
            *self.told,
            *_few(self),
            *_few_tests(self),
            *_tests_like_training(self),
            *_far_off(self),
            *_more_walks_than_time(self),
            *_useless_inputs(self),
            *_without_anchors(self),
            *_swapped_anchors(self),
            *_noise(self),
        ]


def numbered(rows: Array) -> NDArray[np.int64]:
    """A number for each row, the same for equal rows: 0, 1, … in the order of first appearance."""
    seen: dict[tuple[float, ...], int] = {}
    return np.array([seen.setdefault(tuple(row), len(seen)) for row in rows.tolist()], dtype=np.int64)


def _array(values: Any) -> Array:
    made: Array = np.array(values, dtype=np.float64)
    return made


def _whole(workload: str, names: Sequence[str], values: Array) -> NDArray[np.int64]:
    """Numbers of repeats; `BadInputError` for what is none."""
    bad = ~((values >= 1) & (values <= _MOST_REPEATS) & (values == np.floor(values)))
    if bad.any() and values.shape == (len(names),):
        first = int(np.flatnonzero(bad)[0])
        raise BadInputError(
            f"points of {workload}: repeats of {names[first]} is {values[first]:g}: no whole number of at least 1; "
            "correct it, or leave the column out"
        )
    return np.where(bad, 1, values).astype(np.int64)


def _where(points: Points, bad: NDArray[np.bool_]) -> str:
    names = [points.layouts[i] for i in np.flatnonzero(bad)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _columns(points: Points) -> dict[str, Array]:
    """R and the inputs, by label. Further columns may have the same names."""
    return {"R": points.r, **{LABELS[name]: values for name, values in points.inputs.items()}}


def _check_shapes(points: Points) -> None:
    count = len(points.layouts)
    for name, values in [*_columns(points).items(), *points.extra.items()]:
        if values.shape != (count,):
            raise BadInputError(f"points of {points.workload}: {name} has {values.size} values for {count} layouts")
    if len(points.roles) != count:
        raise BadInputError(f"points of {points.workload}: {len(points.roles)} roles for {count} layouts")
    for name in ("r_sd", "repeats", "r_error"):
        values = getattr(points, name)
        if values is not None and values.shape != (count,):
            raise BadInputError(f"points of {points.workload}: {name} has {values.size} values for {count} layouts")
    twice = {name for name in points.layouts if points.layouts.count(name) > 1}
    if twice:
        raise BadInputError(
            f"points of {points.workload}: layout {sorted(twice)[0]} has two rows; give one row per layout, the mean "
            "of its repeats"
        )
    for size, name in points.anchors.items():
        if name not in points.layouts:
            raise BadInputError(f"points of {points.workload}: the layout of {size} pages, {name}, is not among them")
        if points.roles[points.layouts.index(name)] == "test":
            raise BadInputError(
                f"points of {points.workload}: {name} is a test layout, and models are fitted to it as the one of "
                f"{size} pages; give it the role train"
            )
    if "train" not in points.roles:
        raise BadInputError(f"points of {points.workload}: every layout is a test layout; nothing is left to fit")


def _check_values(points: Points) -> None:
    for name, values in _columns(points).items():
        bad = ~np.isfinite(values)
        if bad.any():
            raise BadInputError(
                f"points of {points.workload}: {name} of {_where(points, bad)} is no number; leave such layouts out, "
                "or measure them again"
            )
        bad = values < 0 if name != "R" else values <= 0
        if bad.any():
            raise BadInputError(f"points of {points.workload}: {name} of {_where(points, bad)} is not above zero")
        bad = (values > LARGEST) | ((values > 0) & (values < LEAST))
        if bad.any():
            raise BadInputError(
                f"points of {points.workload}: {name} of {_where(points, bad)} is not within {LEAST:g} ... "
                f"{LARGEST:g}; check its unit"
            )
    if points.r_sd is not None and np.any((points.r_sd < 0) | (points.r_sd > LARGEST)):
        raise BadInputError(
            f"points of {points.workload}: a standard deviation of R is below zero, or above {LARGEST:g}"
        )
    if points.r_error is not None and not np.all((points.r_error >= 0) & (points.r_error <= LARGEST)):
        raise BadInputError(
            f"points of {points.workload}: a standard error of R is no number, below zero, or above {LARGEST:g}"
        )
    if points.walkers < 1:
        raise BadInputError(f"points of {points.workload}: {points.walkers} walkers; a processor has at least one")


def _check_possible(points: Points) -> None:
    if points.source == "simulated":
        return
    active = points.extra.get("active_cycles")
    if active is not None and np.any(active > points.r):
        raise BadInputError(
            f"points of {points.workload}: more cycles with a walk active (active_cycles) than cycles in all, in "
            f"{_where(points, active > points.r)}; check the units of both"
        )
    limit = points.r * (points.walkers if points.cycles == "sum" else 1)
    bad = points.c > limit
    if not bad.any():
        return
    if points.cycles == "active":
        raise BadInputError(
            f"points of {points.workload}: more cycles with a walk active than cycles in all, in "
            f"{_where(points, bad)}; if C sums all walkers, say so: --cycles sum"
        )
    raise BadInputError(
        f"points of {points.workload}: C of {_where(points, bad)} is more than R times {points.walkers} walkers; "
        "check the units of both, or name the processor's walkers: --walkers N"
    )


def enough(points: Points, least: int, model: str) -> None:
    """Raises `BadInputError` if the training layouts are too few for a model, or all have the same run time."""
    if not varies(points.r):
        raise BadInputError(
            f"cannot fit {model} to {points.workload}: R is the same in every layout; there is nothing to explain"
        )
    if len(points) < max(least, FEWEST):
        raise BadInputError(
            f"cannot fit {model} to {points.workload}: {len(points)} training layouts, and it needs "
            f"{max(least, FEWEST)}; measure more layouts"
        )


def varies(values: Array) -> bool:
    """Whether an input is not constant, up to rounding."""
    return bool(np.ptp(values) > 1e-12 * max(float(np.max(np.abs(values))), 1e-300))


def independent(points: Points) -> dict[str, Array]:
    """The inputs that vary and are no linear combination of those before them; C comes first, as in the paper."""
    kept: dict[str, Array] = {}
    for name in ("c", "m", "h"):
        values = points.inputs.get(name)
        if values is None or not varies(values):
            continue
        design = np.column_stack([np.ones(len(points)), *(_standard(one) for one in kept.values())])
        wanted = _standard(values)
        rest = wanted - design @ np.linalg.lstsq(design, wanted, rcond=None)[0]
        if np.mean(rest**2) > COLLINEAR:
            kept[name] = values
    return {name: kept[name] for name in INPUTS if name in kept}


def _standard(values: Array) -> Array:
    scaled: Array = (values - values.mean()) / values.std()
    return scaled


def _few(points: Points) -> list[PointsWarning]:
    count = points.roles.count("train")
    if count >= 2 * TEN_TO_ONE:
        return []
    return [PointsWarning("few-layouts", f"{count} training layouts: the paper has 54, and fewer judge less surely")]


def _few_tests(points: Points) -> list[PointsWarning]:
    count = points.roles.count("test")
    if not 0 < count < FEWEST_TESTS:
        return []
    layouts = "test layouts" if count > 1 else "test layout"
    message = f"{count} {layouts}: the largest error of fewer than {FEWEST_TESTS} says little about other layouts"
    return [PointsWarning("few-tests", message)]


def _tests_like_training(points: Points) -> list[PointsWarning]:
    training = {place for place, role in zip(points.places, points.roles, strict=True) if role == "train"}
    alike = np.array(
        [role == "test" and place in training for place, role in zip(points.places, points.roles, strict=True)]
    )
    if not alike.any():
        return []
    message = (
        f"test layouts with the counts of a training layout ({_where(points, alike)}): their errors are no test of "
        "the models, which were fitted there"
    )
    return [PointsWarning("tests-like-training", message)]


def _far_off(points: Points) -> list[PointsWarning]:
    middle = float(np.median(points.r))
    bad = (points.r > FAR_OFF * middle) | (points.r < middle / FAR_OFF)
    if not bad.any():
        return []
    message = (
        f"R of {_where(points, bad)} is more than {FAR_OFF:.0f} times above or below the median layout's: is it in "
        "another unit? errors relative to R say little where it spans orders of magnitude"
    )
    return [PointsWarning("far-off", message)]


def _more_walks_than_time(points: Points) -> list[PointsWarning]:
    """A warning if simulated walks take longer than the program; counted ones are refused by `validate`."""
    if points.source != "simulated":
        return []
    limits = {"C": (points.c, points.walkers if points.cycles == "sum" else 1)}
    if "active_cycles" in points.extra:
        limits["active_cycles"] = (points.extra["active_cycles"], 1)
    found = []
    for name, (values, times) in limits.items():
        bad = values > points.r * times
        if bad.any():
            limit = f"R times {times} walkers" if times > 1 else "R"
            message = (
                f"simulated {name} is above {limit} in {int(bad.sum())} of {len(points)} layouts "
                f"({_where(points, bad)}): walks of the description cost more than this machine's; models that are "
                "fitted do not mind its scale"
            )
            found.append(PointsWarning("more-walks-than-time", message))
    return found


def _useless_inputs(points: Points) -> list[PointsWarning]:
    training = points.role("train")
    kept = independent(training)
    found = []
    for name, values in training.inputs.items():
        if not varies(values):
            message = f"{LABELS[name]} is the same in every layout: it explains nothing"
            found.append(PointsWarning("constant-input", message))
        elif name not in kept:
            message = f"{LABELS[name]} follows linearly from the other inputs: its share cannot be told from theirs"
            found.append(PointsWarning("collinear-input", message))
    return found


def _without_anchors(points: Points) -> list[PointsWarning]:
    absent = [size for size in ("4K", "2M") if points.anchor(size) is None]
    if not absent:
        return []
    return [
        PointsWarning(
            "no-anchor",
            f"no layout is named as the one of {' and '.join(absent)} pages: models that need it are left out; name it "
            "with --anchor-4k and --anchor-2m",
        )
    ]


def _swapped_anchors(points: Points) -> list[PointsWarning]:
    small, large = points.anchor("4K"), points.anchor("2M")
    if small is None or large is None or points.c[small] >= points.c[large]:
        return []
    message = (
        f"{points.layouts[small]}, the layout of 4K pages, has fewer walk cycles than {points.layouts[large]}, that of "
        "2M pages: are the two names swapped?"
    )
    return [PointsWarning("swapped-anchors", message)]


def _noise(points: Points) -> list[PointsWarning]:
    lacking = ~points.spread_known
    if points.r_se is None:
        some = "" if lacking.all() else f" in most layouts ({_where(points, lacking)})"
        return [
            PointsWarning(
                "noise-unknown",
                f"the spread of R over repeats is not known{some}: the errors of a perfect model cannot be computed, "
                "and intervals attribute all scatter to the layouts",
            )
        ]
    if points.r_error is not None or not lacking.any():
        return []
    return [
        PointsWarning(
            "noise-of-others",
            f"{_where(points, lacking)}: no spread of R over repeats of their own; they are taken to be as noisy as "
            "the others",
        )
    ]
