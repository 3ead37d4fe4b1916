"""Reads points from a CSV file: mosmodel's ``mean.csv``, or any table with R, H, M and C of layouts.

A row is a layout, or one of its repeats: rows of the same layout are averaged, and their spread is the noise of R.
Every row is checked by itself: in a mean, one bad run among good ones is no longer seen.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from pagelab.errors import BadInputError, system_reason

from .points import LABELS, LARGEST, LEAST, Array, CyclesKind, Points, PointsWarning, Role, Source

_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "layout": (("layout",), ("name",), ("configuration",), ("",)),
    "role": (("role",),),
    "r": (("r",), ("cpu-cycles",), ("cycles",), ("runtime_cycles",), ("runtime",)),
    "h": (("h",), ("stlb_hits",), ("dtlb_load_misses.stlb_hit", "dtlb_store_misses.stlb_hit")),
    "m": (("m",), ("stlb_misses",), ("dtlb_load_misses.walk_completed", "dtlb_store_misses.walk_completed")),
    "c": (
        ("c",),
        ("walk_cycles",),
        ("dtlb_load_misses.walk_pending", "dtlb_store_misses.walk_pending"),
        ("dtlb_load_misses.walk_duration", "dtlb_store_misses.walk_duration"),
        ("dtlb_load_misses.walk_active", "dtlb_store_misses.walk_active"),
    ),
    "r_sd": (("r_sd",), ("cpu-cycles_sd",)),
    "repeats": (("repeats",),),
}
"""Possible names of each column, perf's event names among them as mosmodel keeps them; the first that the table has
is read. Several columns in one entry are added up. Case does not matter. Only the first column may be unnamed."""
_ACTIVE = "walk_active"
_APART = 10.0
"""A run so many times above or below the median of its layout is told."""
_MATTERS = 0.01
"""A count below this share of the table's largest may differ so much from run to run."""
_ANCHORS = {
    "4K": re.compile(r"(?:layout|all)?[ _-]?4k(?:i?b)?(?:[ _-]?pages)?", re.IGNORECASE),
    "2M": re.compile(r"(?:layout|all)?[ _-]?2m(?:i?b)?(?:[ _-]?pages)?", re.IGNORECASE),
}


_SURPLUS = "\n"
"""Key of the fields beyond the named ones."""
Rows = list[tuple[int, dict[str, Any]]]


@dataclass(frozen=True)
class Reading:
    """How to read a table; a column that is not given here is found by its usual names."""

    workload: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """``r``, ``h``, ``m``, ``c``, ``layout``, ``role``, ``r_sd`` or ``repeats`` → the column's name."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Column → value; only rows with this value are read."""
    anchors: Mapping[str, str] = field(default_factory=dict)
    """``4K``, ``2M`` → the layout's name."""
    tests: Sequence[str] = ()
    """Names of the layouts that are test layouts only."""
    source: Source = "counted"
    cycles: CyclesKind | None = None
    walkers: int = 2


def read_csv(path: Path, reading: Reading | None = None) -> Points:
    """Returns the points of a table. `BadInputError` names the file, and the missing column or the bad value's line."""
    how = reading or Reading()
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = system_reason(error) if isinstance(error, OSError) else "not UTF-8"
        raise BadInputError(f"cannot import {path}: {reason}") from None
    header, rows = _table(path, text)
    _check_names(path, header)
    _check_lengths(path, header, rows)
    found = _columns(path, header, how)
    rows = _chosen(path, header, rows, how)
    names, groups = _layouts(path, rows, found)
    keys: list[str] = [key for key in ("r", "h", "m", "c", "r_sd", "repeats") if key in found]
    numbers = {key: _numbers(path, rows, found[key]) for key in keys}
    cycles = how.cycles or ("active" if any(_ACTIVE in name.lower() for name in found["c"]) else "sum")
    _check_runs(path, rows, numbers, replace(how, cycles=cycles))
    if "layout" not in found and not {"r_sd", "repeats"} <= set(found):
        names, groups = _alike(rows, numbers, [_role(path, *row, found) for row in rows])
    means = {key: _means(values, groups) for key, values in numbers.items()}
    _check_rows(path, names, groups, found)
    spread, repeats = _noise(numbers, means, groups)
    used = {name for several in found.values() for name in several} | set(how.where)
    points = Points.of(
        how.workload or path.stem,
        r=means["r"],
        c=means["c"],
        layouts=names,
        h=means.get("h"),
        m=means.get("m"),
        roles=_roles(path, rows, groups, names, found, how),
        r_sd=spread,
        repeats=repeats,
        source=how.source,
        cycles=cycles,
        walkers=how.walkers,
        extra={
            name: _means(values, groups)
            for name in header
            if name not in used and (values := _maybe_numbers(rows, name)) is not None
        },
        told=(
            *_merged(found, rows, groups),
            *_unused_spread(found, repeats),
            *_far_from_their_layout(rows, names, groups, numbers),
        ),
    )
    return _with_anchors(path, points, how)


def _table(path: Path, text: str) -> tuple[list[str], Rows]:
    """Header and rows. `BadInputError` for what is no CSV, such as a quote without its end in a long table."""
    table = csv.DictReader(io.StringIO(text), restkey=_SURPLUS)
    line = 0  # the last line that was read well
    try:
        header = [
            name if name.strip() or i == 0 else f"column {i + 1}" for i, name in enumerate(table.fieldnames or [])
        ]
        table.fieldnames = header
        rows: Rows = []
        for row in table:
            line = table.line_num
            rows.append((line, row))
    except csv.Error as error:
        raise BadInputError(
            f'cannot import {path}: line {max(line, 1) + 1}: {error}; is a quote (") without its end?'
        ) from None
    return header, rows


def _check_names(path: Path, header: Sequence[str]) -> None:
    """Refuses two columns of one name, without regard to case: only one of them would be read, without a warning."""
    names = [name.strip().lower() for name in header]
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        alike = [name for name, plain in zip(header, names, strict=True) if plain == twice]
        raise BadInputError(f"cannot import {path}: two columns are named {' and '.join(alike)}; rename one")


def _check_lengths(path: Path, header: Sequence[str], rows: Rows) -> None:
    for line, row in rows:
        if _SURPLUS in row:
            raise BadInputError(
                f"cannot import {path}: line {line} has {len(header) + len(row[_SURPLUS])} fields, and the first line "
                f"names {len(header)} columns; is a comma missing or one too many?"
            )


def _columns(path: Path, header: Sequence[str], how: Reading) -> dict[str, tuple[str, ...]]:
    """Returns, for each quantity, the columns whose sum it is."""
    by_name = {name.strip().lower(): name for name in header}
    found: dict[str, tuple[str, ...]] = {}
    for key, name in how.columns.items():
        if key not in _NAMES:
            raise BadInputError(f"--column {key}={name}: {key} is unknown; allowed: {', '.join(_NAMES)}")
        if name not in header:
            raise BadInputError(f"cannot import {path}: it has no column {name}; it has: {', '.join(header)}")
        found[key] = (name,)
    for key, choices in _NAMES.items():
        if key in found:
            continue
        for names in choices:
            if all(name in by_name for name in names):
                found[key] = tuple(by_name[name] for name in names)
                break
    for key in ("r", "c"):
        if key not in found:
            known = ", ".join(" + ".join(names) for names in _NAMES[key])
            raise BadInputError(
                f"cannot import {path}: no column is known to be {LABELS.get(key, 'R')} ({known}); it has: "
                f"{', '.join(header)}; name one with --column {key}=NAME"
            )
    return found


def _chosen(path: Path, header: Sequence[str], rows: Rows, how: Reading) -> Rows:
    for column, value in how.where.items():
        if column not in header:
            raise BadInputError(f"--where {column}={value}: {path} has no such column; it has: {', '.join(header)}")
        rows = [(line, row) for line, row in rows if row[column] == value]
    if not rows:
        wanted = " and ".join(f"{column}={value}" for column, value in how.where.items())
        raise BadInputError(f"cannot import {path}: it has no row{f' of {wanted}' if wanted else ''}")
    return rows


def _layouts(path: Path, rows: Rows, found: Mapping[str, tuple[str, ...]]) -> tuple[list[str], list[list[int]]]:
    """Returns the layouts' names in order, and the rows of each; without names, every row is a layout."""
    if "layout" not in found:
        return [f"line {line}" for line, _ in rows], [[i] for i in range(len(rows))]
    groups: dict[str, list[int]] = {}
    for i, (line, row) in enumerate(rows):
        name = (row[found["layout"][0]] or "").strip()
        if not name:
            raise BadInputError(f"cannot import {path}: line {line}: its layout has no name")
        groups.setdefault(name, []).append(i)
    return list(groups), list(groups.values())


def _alike(rows: Rows, numbers: Mapping[str, Array], roles: Sequence[Role]) -> tuple[list[str], list[list[int]]]:
    """As :func:`_layouts`, of rows without names: those of equal counts and one role are repeats of one layout.

    As layouts of their own, each would be judged by a model that was fitted to the others.
    """
    groups: dict[tuple[float | Role, ...], list[int]] = {}
    for i, role in enumerate(roles):
        groups.setdefault((role, *(float(numbers[key][i]) for key in LABELS if key in numbers)), []).append(i)
    return [f"line {rows[mine[0]][0]}" for mine in groups.values()], list(groups.values())


def _merged(found: Mapping[str, tuple[str, ...]], rows: Rows, groups: list[list[int]]) -> list[PointsWarning]:
    if "layout" in found or len(groups) == len(rows):
        return []
    message = (
        f"the table has no column layout: rows of equal counts are taken for repeats, {len(rows)} rows for "
        f"{len(groups)} layouts, each named by its first line"
    )
    return [PointsWarning("unnamed-layouts", message)]


def _unused_spread(found: Mapping[str, tuple[str, ...]], repeats: Array | None) -> list[PointsWarning]:
    """A warning of a column that means nothing without another one."""
    if ("r_sd" in found) == ("repeats" in found):
        return []
    key, other = ("r_sd", "repeats") if "r_sd" in found else ("repeats", "r_sd")
    column = found[key][0]
    if repeats is not None:
        message = f"the column {column} is not used: rows are runs, and the noise is taken from them"
    else:
        message = (
            f"the column {column} is not used, so the noise is unknown: it takes {key} and {other}; name the other "
            f"column with --column {other}=NAME, or import a row for every run"
        )
    return [PointsWarning("unused-spread", message)]


def _check_runs(path: Path, rows: Rows, numbers: Mapping[str, Array], how: Reading) -> None:
    """Refuses single runs that cannot be, by their lines."""
    for key in ("r", *LABELS):
        if key not in numbers:
            continue
        label, least = ("R", LEAST) if key == "r" else (LABELS[key], 0.0)
        for (line, _), value in zip(rows, numbers[key], strict=True):
            if not least <= value <= LARGEST or 0 < value < LEAST:
                allowed = f"{LEAST:g} ... {LARGEST:g}"
                raise BadInputError(
                    f"cannot import {path}: line {line}: {label} is {value:g}, not {'0 or ' if key != 'r' else ''}"
                    f"within {allowed}; correct the line, or leave it out"
                )
    walkers = how.walkers if how.cycles == "sum" else 1
    bad = np.flatnonzero(numbers["c"] > numbers["r"] * walkers)
    if bad.size and how.source == "counted":
        times = f"R times {walkers} walkers" if walkers > 1 else "R"
        more = f" (and in {bad.size - 1} more lines)" if bad.size > 1 else ""
        hint = "check the units of both, or name the processor's walkers: --walkers N"
        if how.cycles == "active":
            hint = "if C sums all walkers, say so: --cycles sum"
        raise BadInputError(f"cannot import {path}: line {rows[bad[0]][0]}: C is more than {times}{more}; {hint}")


def _far_from_their_layout(
    rows: Rows, names: Sequence[str], groups: list[list[int]], numbers: Mapping[str, Array]
) -> list[PointsWarning]:
    """A warning of runs far from their layout's median: in another unit, or of something else."""
    apart = []
    for key in ("r", *LABELS):
        if key not in numbers:
            continue
        least = _MATTERS * float(numbers[key].max())
        for name, mine in zip(names, groups, strict=True):
            own = numbers[key][mine]
            low, high = np.minimum(own, np.median(own)), np.maximum(own, np.median(own))
            for i in np.flatnonzero((high > _APART * low) & (high > (0 if key == "r" else least))):
                apart.append((rows[mine[i]][0], "R" if key == "r" else LABELS[key], name))
    if not apart:
        return []
    line, label, name = apart[0]
    more = f", and {len(apart) - 1} more" if len(apart) > 1 else ""
    message = (
        f"line {line}: {label} is more than {_APART:.0f} times above or below the median of layout {name}{more}: is "
        "it of another run, or in another unit?"
    )
    return [PointsWarning("run-far-off", message)]


def _numbers(path: Path, rows: Rows, columns: tuple[str, ...]) -> Array:
    values = np.zeros(len(rows))
    for i, (line, row) in enumerate(rows):
        for column in columns:
            text = row[column]
            try:
                values[i] += float(text or "")
            except ValueError:
                raise BadInputError(
                    f'cannot import {path}: line {line}: {column} is "{text or ""}", no number'
                ) from None
    return values


def _maybe_numbers(rows: Rows, column: str) -> Array | None:
    try:
        return np.array([float(row[column]) for _, row in rows])
    except (TypeError, ValueError):
        return None


def _means(values: Array, groups: list[list[int]]) -> Array:
    return np.array([values[rows].mean() for rows in groups])


def _check_rows(
    path: Path, names: Sequence[str], groups: list[list[int]], found: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuses tables whose rows are runs by their layouts, and means by their columns."""
    twice = next((name for name, rows in zip(names, groups, strict=True) if len(rows) > 1), None)
    if twice is not None and "r_sd" in found and "repeats" in found:
        columns = f"{found['r_sd'][0]} and {found['repeats'][0]}"
        raise BadInputError(
            f"cannot import {path}: layout {twice} has two rows, so rows are runs, and the columns {columns} say that "
            f"they are means: give each layout one row, or leave these columns out"
        )


def _noise(
    numbers: Mapping[str, Array], means: Mapping[str, Array], groups: list[list[int]]
) -> tuple[Array | None, Array | None]:
    """Standard deviation of R and number of repeats by layout, from a layout's rows or from the table's columns."""
    if max(len(rows) for rows in groups) > 1:
        spread = [np.std(numbers["r"][rows], ddof=1) if len(rows) > 1 else np.nan for rows in groups]
        return np.array(spread), np.array([float(len(rows)) for rows in groups])
    if "r_sd" in means and "repeats" in means:
        return means["r_sd"], means["repeats"]
    return None, None


def _roles(
    path: Path,
    rows: Rows,
    groups: list[list[int]],
    names: Sequence[str],
    found: Mapping[str, tuple[str, ...]],
    how: Reading,
) -> list[Role]:
    tests = {name.strip() for name in how.tests}
    for name in how.tests:
        if name.strip() not in names:
            raise BadInputError(f"--test {name}: {path} has no such layout; it has: {', '.join(names[:8])}, ...")
    roles: list[Role] = []
    for name, mine in zip(names, groups, strict=True):
        own = {row: _role(path, *rows[row], found) for row in mine}
        other = next((row for row in mine if own[row] != own[mine[0]]), None)
        if other is not None:
            raise BadInputError(
                f"cannot import {path}: line {rows[other][0]}: layout {name} is {own[other]} here and {own[mine[0]]} "
                f"in line {rows[mine[0]][0]}; repeats of a layout have one role"
            )
        roles.append("test" if name in tests else own[mine[0]])
    return roles


def _role(path: Path, line: int, row: dict[str, Any], found: Mapping[str, tuple[str, ...]]) -> Role:
    text = "train" if "role" not in found else (row[found["role"][0]] or "train").strip().lower()
    if text not in get_args(Role):
        raise BadInputError(f'cannot import {path}: line {line}: role "{text}"; allowed: train, test')
    return "test" if text == "test" else "train"


def _with_anchors(path: Path, points: Points, how: Reading) -> Points:
    """The points with the anchors that were given, else with the layouts that are named like a page size."""
    anchors = {}
    for size, pattern in _ANCHORS.items():
        named = how.anchors[size].strip() if size in how.anchors else None
        if named is not None and named not in points.layouts:
            raise BadInputError(
                f"--anchor-{size.lower()} {named}: {path} has no such layout; it has: "
                f"{', '.join(points.layouts[:8])}, ..."
            )
        alike = [name for name in points.layouts if pattern.fullmatch(name)]
        if named is not None or len(alike) == 1:
            anchors[size] = named or alike[0]
    if len(set(anchors.values())) < len(anchors):
        raise BadInputError(
            f"cannot import {path}: {anchors['4K']} is named as the layout of 4K pages and as that of 2M pages; name "
            "another with --anchor-4k or --anchor-2m"
        )
    made = replace(points, anchors=anchors)
    made.validate()
    return made
