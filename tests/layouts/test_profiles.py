"""Miss profiles: windows of the simulator, saved samples of perf, and what they sum up to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.layouts import Footprint, footprint, perf_script, picture, profile
from pagelab.layouts.layout import PLACES, POOLS, TILE
from pagelab.policy import load
from pagelab.record import Record
from pagelab.simulate.placements import placement
from pagelab.simulate.tlb_runs import tlb

PERF = Path(__file__).parent / "perf"
SAMPLES = {
    "intel": [(0x670000001000, 10007.0), (0x670000201040, 10007.0), (0x6600000000C0, 5000.0)],
    "amd": [(0x670000400000, 250000.0), (0x660000000000, 250000.0)],
    "arm": [(0x680000000010, 1.0), (0x670000600010, 1.0)],
}


@pytest.mark.parametrize("name", SAMPLES)
def test_saved_samples_are_read(name: str) -> None:
    read = perf_script.Read()
    assert list(perf_script.samples((PERF / f"{name}.txt").read_text().splitlines(), read)) == SAMPLES[name]
    assert sum(read.misses.values()) == len(SAMPLES[name])
    assert read.without_address == (1 if name == "intel" else 0)
    assert sum(read.events.values()) == {"intel": 5, "amd": 4, "arm": 4}[name]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("gups 12 1.5: dtlb_load_misses.miss_causes_a_walk: 670000000010 4011f0 f (x)", [(0x670000000010, 1.0)]),
        ("12 stlb-miss: 670000000010", [(0x670000000010, 1.0)]),
        ("gups 12 1.5: 77 page-walks:u: 670000000010", [(0x670000000010, 77.0)]),
        ("a b: 3 12 1.5: 9 dTLB-load-misses: 670000000010", [(0x670000000010, 9.0)]),
        ("gups 12 1.5: 9 spe: 670000000010 |OP LOAD|LVL L1 miss|TLB Walker miss|", [(0x670000000010, 9.0)]),
    ],
)
def test_fields_may_be_missing(line: str, found: list[tuple[int, float]]) -> None:
    assert list(perf_script.samples([line])) == found


def test_samples_without_misses_are_refused() -> None:
    lines = ["gups 12 1.5: 1 cycles: 670000000010 4011f0 f (x)"] * 3
    with pytest.raises(BadInputError, match=r"3 of cycles.*perf record -d"):
        list(perf_script.samples(lines))
    with pytest.raises(BadInputError, match="no samples"):
        list(perf_script.samples(["# only comments", ""]))


addresses = st.builds(
    lambda pool, offset: PLACES[pool].start + offset, st.integers(0, 2), st.integers(0, 12 * TILE - 1)
)


@given(st.lists(st.tuples(st.one_of(addresses, st.integers(0, 2**47)), st.integers(1, 100)), max_size=60))
def test_a_profile_is_the_sum_over_each_tile(samples: list[tuple[int, int]]) -> None:
    space = Footprint(tuple((pool, at * TILE) for pool in POOLS for at in (0, 1, 5, 11)))
    found = profile.of_samples(((address, float(weight)) for address, weight in samples), space, PLACES)
    bases = {pool.memory: pool.start for pool in PLACES}
    for position, (pool, at) in enumerate(space.tiles):
        start = bases[pool] + at
        assert found.misses[position] == sum(weight for address, weight in samples if start <= address < start + TILE)
    assert found.total == pytest.approx(sum(weight for _, weight in samples))
    assert found.elsewhere >= 0


def test_windows_of_base_pages_are_chosen_and_averaged_over_seeds() -> None:
    space = Footprint((("heap", 0), ("heap", TILE)))
    start = PLACES[0].start
    rows = [
        ("2M", 0, start, 1000),
        ("4K", 0, start, 10),
        ("4K", 1, start, 20),
        ("4K", 0, start + TILE, 8),
        ("4K", 0, 0, 4),
    ]
    frame = pl.DataFrame(rows, schema=["placement", "seed", "start", "m"], orient="row")
    found = profile.of_windows(frame.with_columns(pl.col("start").cast(pl.UInt64)), space, PLACES)
    assert found.misses.tolist() == [15, 4]
    assert found.elsewhere == 2
    with pytest.raises(BadInputError, match="no column m, seed"):
        profile.of_windows(frame.drop("seed", "m"), space, PLACES)


def test_a_picture_has_bars_of_all_misses_and_a_strip_a_share(tmp_path: Path) -> None:
    space = Footprint(tuple(("anon" if at < 600 else "arenas", at % 600 * TILE) for at in range(1200)))
    misses = np.zeros(1200)
    misses[700:720] = 5
    drawn = picture.specification(profile.Profile(misses, 0.0, "samples"), space)
    bars, strips = (drawn["datasets"][layer["data"]["name"]] for layer in drawn["vconcat"])
    assert len(bars) == 400
    assert sum(bar["misses"] for bar in bars) == 100
    assert {bar["pool"] for bar in bars} == {"anon", "arenas"}
    assert [strip["share"] for strip in strips] == ["20%", "40%", "60%", "80%"]
    assert strips[3]["end"] - strips[3]["start"] == 16 * 2
    picture.write(profile.Profile(misses, 0.0, "samples"), space, tmp_path / "p.svg")
    assert (tmp_path / "p.svg").read_bytes().startswith(b"<svg")
    with pytest.raises(BadInputError, match="allowed: a name in svg"):
        picture.write(profile.Profile(misses, 0.0, "samples"), space, tmp_path / "p.gif")


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    """24 MiB in the pool of mappings, of which the last 8 MiB are used at random, the others in order."""
    path = tmp_path / "made.trace"
    rng = np.random.default_rng(1)
    base = PLACES[1].start
    order = base + np.arange(0, 16 << 20, 4096, dtype=np.uint64)
    hot = base + np.uint64(16 << 20) + rng.integers(0, 2048, 200_000).astype(np.uint64) * np.uint64(4096)
    trace.write(path, [order, hot], pools=PLACES)
    return path


def command(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "pagelab", "model", "layouts", *map(str, arguments)]
    return subprocess.run(line, cwd=cwd, capture_output=True, text=True, check=False)


def test_a_campaign_from_a_trace(traced: Path, tmp_path: Path) -> None:
    done = command("--processor", "haswell", "--n", 20, "--json", "--picture", "m.svg", traced, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["tiles"], told["pools"], told["asked"], told["tests"]) == (12, ["anon"], 20, 12)
    assert len(told["layouts"]) + len(told["merged"]) == 20
    index = pl.read_csv(tmp_path / "layouts" / "layouts.csv")
    assert index["role"].to_list() == ["model"] * len(told["layouts"]) + ["test"] * 12
    # Nearly all misses are in the last four tiles.
    share = dict(zip(index["file"], index["misses_share"], strict=True))
    assert share["4K.toml"] == 0
    assert share["2M.toml"] == pytest.approx(1)
    assert share["sliding-80-0-of-2.toml"] > 0.8
    policies = [tmp_path / "layouts" / name for name in ("4K.toml", "sliding-80-0-of-2.toml", "2M.toml")]
    assert load(policies[0]).name == "4K"
    runs = tlb(traced, "haswell", [placement(path) for path in policies])
    small, hot, large = runs.executions["m"].to_list()
    assert small > 10 * hot
    assert hot > large
    again = command(traced, cwd=tmp_path)
    assert again.returncode == 2
    assert "--force" in again.stderr
    assert command("--force", "--selector", "kinds", "--tests", 0, traced, cwd=tmp_path).returncode == 0
    assert sorted(path.name for path in (tmp_path / "layouts").iterdir()) == ["4K.toml", "anon.toml", "layouts.csv"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--selector", "best"], "allowed: campaign, moselect, kinds"),
        (["--selector", "moselect"], "moselect chooses by misses"),
        (["--n", "5"], "at least 7"),
        (["--tests", "3"], "at least 12"),
        (["--picture", "x.svg"], "--picture draws misses"),
        (["--profile", "gone.txt"], "cannot read the profile gone.txt"),
        (["--profile", "a", "--processor", "haswell"], "not from both"),
    ],
)
def test_bad_input_is_refused(traced: Path, tmp_path: Path, arguments: list[str], why: str) -> None:
    done = command(*arguments, traced, cwd=tmp_path)
    assert done.returncode == 2
    assert why in " ".join(done.stderr.split())


def test_a_trace_without_pools_is_refused(tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [np.arange(10, dtype=np.uint64)])
    with pytest.raises(BadInputError, match=r"without pools.*pagelab trace --pools"):
        footprint.of_trace(tmp_path / "t")


def test_a_footprint_from_a_record(tmp_path: Path) -> None:
    pages = "".join(f'[[rule]]\nmemory = "{pool}"\npages = "4K"\n' for pool in POOLS)
    (tmp_path / "p.toml").write_text(f'name = "p"\n{pages}')
    source = (
        "import mmap; m = mmap.mmap(-1, 41 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS); m[::4096] = b'x' * (41 << 8)"
    )
    run = [sys.executable, "-m", "pagelab", "run", "--policy", "p.toml", "--json", "--", sys.executable, "-c", source]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    found = footprint.of_record(Record.model_validate_json(done.stdout))
    assert found.pools[:2] == ("heap", "anon")
    anonymous = [at for pool, at in found.tiles if pool == "anon"]
    assert anonymous == list(range(0, len(anonymous) * TILE, TILE))
    assert 21 <= len(anonymous) <= 30
    (tmp_path / "record.json").write_text(done.stdout)
    made = command("record.json", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert "no misses are known" in " ".join(made.stdout.split())
