"""Writes layouts as files: one policy per layout, and a table of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path

from pagelab import whole_file
from pagelab.errors import BadInputError, cannot_write
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout
from pagelab.layouts.profile import Profile

INDEX = "layouts.csv"
"""One row a layout: ``file, role, huge_bytes, misses_share`` (empty without a profile)."""


def write(
    directory: Path,
    footprint: Footprint,
    layouts: Sequence[Layout],
    tests: Sequence[Layout],
    profile: Profile | None,
    *,
    force: bool = False,
) -> list[Path]:
    """Writes every layout as a policy, ``NAME.toml``, and :data:`INDEX` last; returns the policies' paths.

    ``tests`` have the role ``test``, the others ``model``. Raises :class:`BadInputError` where the directory has an
    index or one of the files already, unless ``force`` replaces them (policies that the index lists go with it), and
    where its index is another kind of table.
    """
    index = directory / INDEX
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if index.exists():
            if not force:
                raise BadInputError(f"{directory}: it has layouts already; give another directory, or --force")
            for name in _listed(index):
                (directory / name).unlink(missing_ok=True)
        there = [one.name for one in (*layouts, *tests) if (directory / f"{one.name}.toml").exists()]
        if there and not force:
            raise BadInputError(f"{directory / there[0]}.toml exists; give another directory, or --force")
        table = io.StringIO()
        rows = csv.writer(table, lineterminator="\n")
        rows.writerow(["file", "role", "huge_bytes", "misses_share"])
        paths = []
        for role, group in (("model", layouts), ("test", tests)):
            for layout in group:
                path = directory / f"{layout.name}.toml"
                whole_file.put(path, layout.policy().toml)
                paths.append(path)
                rows.writerow([path.name, role, layout.huge_bytes, _share(footprint, layout, profile)])
        whole_file.put(index, table.getvalue())
    except OSError as error:
        raise cannot_write(directory / INDEX, error, "layouts and") from error
    return paths


def _listed(index: Path) -> list[str]:
    """Names of the policies that an index lists. Raises :class:`BadInputError` for another kind of table."""
    try:
        table = csv.DictReader(io.StringIO(index.read_text(encoding="utf-8")))
        names = [Path(row["file"]).name for row in table] if "file" in (table.fieldnames or ()) else None
    except (csv.Error, UnicodeDecodeError):
        names = None
    if names is None:
        raise BadInputError(f"{index}: it is no list of layouts, and is kept; give another directory")
    return names


def _share(footprint: Footprint, layout: Layout, profile: Profile | None) -> str:
    if profile is None or not profile.total:
        return ""
    return f"{profile.misses[footprint.positions(layout)].sum() / profile.total:.6f}"
