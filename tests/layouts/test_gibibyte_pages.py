"""Layouts of 1 GiB pages: planned, refused where the machine has none, simulated."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pagelab import layouts
from pagelab.errors import BadInputError
from pagelab.layouts.campaign import anchors
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Layout, Tile
from pagelab.layouts.windows import growing
from pagelab.simulate.placements import ANONYMOUS_POOL, History, placement
from pagelab.simulate.tlb_runs import tlb

GIB = 1 << 30
POOL = Path("/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages")
FOUR = Footprint(tuple(("anon", at * GIB) for at in range(4)), GIB)


def test_layouts_of_1g_tiles_are_planned() -> None:
    small, large = anchors(FOUR)
    assert (small.name, small.tiles, large.name) == ("4K", (), "1G")
    assert large.tiles == (Tile("anon", 0, 4 * GIB, GIB),)
    for layout in [large, *growing(FOUR, 5)]:
        assert layout.pieces(GIB) <= set(FOUR.tiles)
        assert layout.policy(GIB).toml  # validated
        assert '"1G"]' in layout.toml(GIB)
    with pytest.raises(BadInputError, match="not of whole pages of 1073741824 bytes"):
        Tile("anon", 0, GIB // 2, GIB)
    with pytest.raises(BadInputError, match=r"not a tile of 1073741824 bytes"):
        Footprint((("anon", GIB // 2),), GIB)


def test_1g_beside_2m_stay_apart() -> None:
    mixed = Layout("mixed", (Tile("anon", 0, GIB, GIB), Tile("anon", GIB, GIB + (2 << 20), 2 << 20)))
    assert len(mixed.tiles) == 2
    assert len(layouts.distinct([mixed, Layout("again", mixed.tiles)]).layouts) == 1


@pytest.mark.skipif(
    not POOL.exists() or POOL.read_text().strip() != "0", reason="1 GiB pages are reserved here, or cannot be"
)
def test_a_run_without_reserved_1g_pages_is_refused_with_the_next_command(tmp_path: Path) -> None:
    (tmp_path / "1G.toml").write_text(anchors(FOUR)[1].toml(GIB))
    command = [sys.executable, "-m", "pagelab", "run", "--policy", "1G.toml", "--", "true"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2, done.stderr
    assert "no huge pages of 1G are reserved" in done.stderr
    assert "pagelab doctor --fix hugepages-1G=" in done.stderr


def test_a_1g_layout_simulates_with_the_misses_of_its_pages(tmp_path: Path) -> None:
    """Random references to 4 GiB: 4K pages miss nearly always, four 1G pages once each."""
    addresses = np.random.default_rng(3).integers(0, 4 * GIB, 200_000, dtype=np.uint64) + np.uint64(ANONYMOUS_POOL)
    missed = {}
    for layout in anchors(FOUR):
        path = tmp_path / f"{layout.name}.toml"
        path.write_text(layout.toml(GIB))
        runs = tlb(addresses, "broadwell", placement(path), history=History(turnover=0))
        missed[layout.name] = int(runs.executions["m"][0])
    assert missed["1G"] == 4
    assert missed["4K"] > 0.95 * len(addresses)
