"""Advice by misses: which tiles are chosen, and ``pagelab advise --samples`` and ``--trace`` as they are typed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tomllib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.guests import Workshop
from pagelab.advise.design import TILE
from pagelab.advise.evidence import LEAST, chosen, layout
from pagelab.layouts import Footprint, Profile
from pagelab.policy import parse
from pagelab.sizes import size_bytes

pytestmark = pytest.mark.needs_page_sizes

MS = r"(?P<name>op) (?P<value>[0-9.]+) (?P<unit>ms)"
ANON = 0x6700_0000_0000
BLOCK = 8 << 20


def run(cwd: Path, command: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "pagelab", command, *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, cwd=cwd)


@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=8).filter(any),
    st.integers(1, 9),
    st.integers(0, 30),
    st.sampled_from([1, 2]),
)
def test_no_other_set_of_tiles_in_the_budget_misses_more(
    misses: list[int], room: int, elsewhere: int, gap: int
) -> None:
    space = Footprint(tuple(("heap" if at < 3 else "anon", gap * at * TILE) for at in range(len(misses))))
    found = chosen(space, Profile(np.array(misses, float), float(elsewhere), "planted"), room * TILE)
    worth = [one for one in misses if one > 0 and one >= LEAST * np.mean(misses)]
    best = max(sum(some) for size in range(min(room, len(worth)) + 1) for some in combinations(worth, size))
    taken = found.choice.chosen
    assert found.misses[taken].sum() * (sum(misses) + elsewhere) == pytest.approx(best)
    assert found.misses.sum() == pytest.approx(sum(misses) / (sum(misses) + elsewhere))
    assert found.choice.huge_bytes == sum(r.bytes for r, t in zip(found.regions, taken, strict=True) if t)
    assert found.choice.huge_bytes <= room * TILE
    assert found.choice.left_out == max(0, len(worth) - room)
    # The regions are all tiles, each once, and the policy has the chosen ones.
    tiles = [(r.pool, at) for r in found.regions for at in range(r.start, r.end, TILE)]
    assert tiles == list(space.tiles)
    made = layout([r for r, t in zip(found.regions, taken, strict=True) if t])
    assert made.huge_bytes == found.choice.huge_bytes
    assert made.policy().toml


def test_tiles_that_hardly_miss_get_none_and_have_less_than_a_tenth_of_all() -> None:
    space = Footprint(tuple(("anon", at * TILE) for at in range(20)))
    misses = np.where(np.arange(20) < 4, 1000.0, 15.0)
    found = chosen(space, Profile(misses, 0.0, "planted"), None)
    assert [(r.start // TILE, r.end // TILE) for r in found.regions] == [(0, 4), (4, 20)]
    assert found.choice.chosen.tolist() == [True, False]
    assert found.misses[1] < 0.1


@pytest.fixture
def program(workshop: Workshop) -> Path:
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    return workshop.build("advise/says_what_is_huge")


def sampled(path: Path, addresses: list[int]) -> Path:
    lines = [f"prog 12 1.5: 100 dtlb-load-misses: {address:x} 4011f0 f (x)" for address in addresses]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.by_turns(4)
def test_samples_choose_the_block_that_misses_and_the_check_tells_what_it_gains(program: Path, tmp_path: Path) -> None:
    """Of four blocks of 8 MiB the third gains 30 ms of 100, and has most samples."""
    addresses = [ANON + 2 * BLOCK + at * 4096 for at in range(0, 2048, 8)] + [ANON + 5, 0x7FFF_0000_0000]
    samples = sampled(tmp_path / "perf.txt", addresses)
    done = run(
        tmp_path, "advise", "--measure-regex", MS, "--minutes", 0.3, "--samples", samples, "--json", "--into", "kept",
        "--", program, 0, 0, 30, 0,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["evidence"] == "samples"
    assert [(one["pool"], one["start_bytes"], one["end_bytes"]) for one in told["regions"] if one["chosen"]] == [
        ("anon", 2 * BLOCK, 3 * BLOCK)
    ]
    assert told["huge_bytes"] == BLOCK
    assert told["promised_percent"] is None
    assert {one["gain_percent"] for one in told["regions"]} == {None}
    assert sum(one["misses_percent"] for one in told["regions"]) == pytest.approx(100 * 257 / 258)
    assert told["checked"][0]["change_percent"] == pytest.approx(-30, abs=0.01)
    assert "30.0% lower than the kernel's own way" in told["verdict"]
    again = run(tmp_path, "run", "--policy", told["policy"], "--", program, 0, 0, 30, 0)
    assert "op 70.000000 ms" in again.stdout, again.stderr


@pytest.mark.by_turns(4)
def test_a_trace_chooses_within_the_budget(program: Path, tmp_path: Path) -> None:
    traced = run(tmp_path, "trace", "--pools", "-o", "it.trace", "--", program, 0, 10, 30, 0)
    assert traced.returncode == 0, traced.stderr
    advise = ("advise", "--measure-regex", MS, "--minutes", 0.2, "--processor", "zen-4", "--trace", "it.trace")
    done = run(tmp_path, *advise, "--budget", "9M", "--", program, 0, 10, 30, 0)
    assert done.returncode == 0, done.stderr
    assert "TLB misses of each region in 4K pages, simulated from the trace" in done.stdout
    assert "more tiles of 2 MiB miss, and the budget has no room for them" in done.stdout
    assert "promised" not in done.stdout
    other = run(tmp_path, *advise, "--", program, 0, 10, 30, 0, 5)
    assert other.returncode == 2
    assert f"it is of {program} 0 10 30 0; capture it with: pagelab trace --pools" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--trace", "a", "--samples", "b"), "misses come from only one of them"),
        (("--processor", "zen-4"), "needs a trace to simulate; give one: --trace FILE"),
        (("--samples", "nowhere.txt"), "cannot read --samples nowhere.txt: it is no file"),
    ],
)
def test_wrong_evidence_is_refused_before_anything_runs(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = run(tmp_path, "advise", *arguments, "--", "true")
    assert done.returncode == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_page_runs_are_refused_before_anything_runs_where_stores_need_references(tmp_path: Path) -> None:
    """Regression: the commands that the page gives were refused after the footprint's executions, with no command."""
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")
    traced = run(tmp_path, "trace", "--pools", "-o", "t", "--", "true")
    assert traced.returncode == 0, traced.stderr
    done = run(tmp_path, "advise", "--processor", "sapphire-rapids", "--trace", "t", "--", "true")
    assert done.returncode == 2
    told = "it has page runs, and stores have entries of their own on sapphire-rapids; capture it with: pagelab trace "
    assert f"{told}--pools --full -o t -- true" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t"]


def test_advice_and_layouts_warn_of_a_trace_that_was_cut(tmp_path: Path) -> None:
    if shutil.which("qemu-x86_64") is None:
        pytest.skip("no emulator: install qemu-user (apt install qemu-user)")
    run(tmp_path, "trace", "--pools", "-o", "t", "--", "sh", "-c", "kill -9 $$")
    for words in (("advise", "--trace", "t", "--", "true"), ("model", "layouts", "t")):
        done = run(tmp_path, *words)
        assert "warning: t is incomplete: its program was killed; see: pagelab trace info t\n" in done.stderr


def test_samples_of_memory_that_no_pool_has_are_refused(program: Path, tmp_path: Path) -> None:
    samples = sampled(tmp_path / "perf.txt", [0x7FFF_0000_0000])
    done = run(tmp_path, "advise", "--minutes", 0.3, "--samples", samples, "--into", "kept", "--", program, 0, 30)
    assert done.returncode == 2
    assert "none of its misses lies in heap, anonymous memory or arenas" in done.stderr
    assert not (tmp_path / "kept").exists()


def test_the_policy_that_docs_give_for_sampling_puts_memory_where_the_advice_has_it() -> None:
    page = (Path(__file__).parents[2] / "docs/advise.md").read_text()
    text = page.split("```toml\n", 1)[1].split("```", 1)[0]

    def plain(toml: str) -> dict[str, Any]:
        found = tomllib.loads(toml)
        del found["name"]
        for rule in found["rule"]:
            rule["pages"]["mosaic"] = [
                [size_bytes(a, "a"), size_bytes(b, "b"), c] for a, b, c in rule["pages"]["mosaic"]
            ]
        return found

    assert plain(text) == plain(layout([]).toml())
    parse(text, "pools.toml")
