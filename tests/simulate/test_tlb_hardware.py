"""Simulated TLB misses against the hardware counters of this machine, on pointer chases with known answers."""

from __future__ import annotations

import json
import os
import subprocess

import numpy as np
import pytest

from harness.launching import Run, Runner
from pagelab import paths
from pagelab.simulate.placements import HEAP_POOL, History
from pagelab.simulate.tlb_runs import tlb

TOLERANCE = 0.15
"""Of an event for each access, either way: what else the process and its kernel do, and entries that other pages of it
take. The simulator must have the known answer to the digit."""
ACCESSES = 4_000_000
PRESETS = {
    "Intel Sandy Bridge": "sandy-bridge",
    "Intel Ivy Bridge": "ivy-bridge",
    "Intel Haswell": "haswell",
    "Intel Broadwell": "broadwell",
    "Intel Skylake": "skylake",
    "Intel Ice": "ice-lake-server",
    "Intel Sapphire": "sapphire-rapids",
    "AMD Zen 2": "zen-2",
    "AMD Zen 3": "zen-3",
    "AMD Zen 4": "zen-4",
    "AMD Zen 5": "zen-5",
    "Arm Neoverse N1": "neoverse-n1",
    "Arm Neoverse V1": "neoverse-v1",
    "Arm Neoverse N2": "neoverse-n2",
}
"""Beginnings of the names in the counters' table, and the preset of such a processor."""
CHASES = {448: (1.0, 0.0), 131_072: (0.0, 1.0)}
"""Base pages → H and M for each access. 448 are more than any first level holds, even where four neighbours share an
entry, and fewer than any second; 131,072 are far more than any second level holds."""


def counters() -> dict[str, object]:
    done = subprocess.run([str(paths.launcher()), "--counters"], capture_output=True, text=True, check=True)
    document: dict[str, object] = json.loads(done.stdout)
    return document


def own_preset() -> str | None:
    name = str(counters()["microarchitecture"])
    return next((preset for start, preset in PRESETS.items() if name.startswith(start)), None)


def usable() -> bool:
    hardware = counters()["hardware"]
    assert isinstance(hardware, dict)
    return bool(hardware["usable"])


def simulated(pages: int, preset: str) -> tuple[float, float]:
    """H and M for each access of a chase in random order, once every page has been there.

    Frames are random: none of its neighbours share an entry where the hardware coalesces those that lie side by side.
    """
    order = np.random.default_rng(3).permutation(pages).astype(np.uint64) * np.uint64(4096) + np.uint64(HEAP_POOL)
    runs = [tlb(np.tile(order, laps), preset, "random:colors=64", history=History(turnover=0)) for laps in (1, 3)]
    once, often = (one.executions.row(0, named=True) for one in runs)
    return (often["h"] - once["h"]) / (2 * pages), (often["m"] - once["m"]) / (2 * pages)


def counted(run: Run, name: str) -> float:
    (counter,) = [counter for counter in run.the_record.counters if counter.name == name]
    assert counter.status == "ok", run.story()
    assert counter.count is not None
    return counter.count


@pytest.mark.parametrize("preset", sorted(set(PRESETS.values())))
@pytest.mark.parametrize("pages", CHASES)
def test_every_preset_has_the_known_answers(pages: int, preset: str) -> None:
    assert simulated(pages, preset) == CHASES[pages]


@pytest.mark.parametrize("pages", CHASES)
@pytest.mark.skipif(
    not usable(),
    reason="this machine shows no hardware counters, so simulated TLB misses cannot be compared with real ones; run "
    "the tests on bare metal, or in a guest with a virtual PMU (pagelab-launch --counters tells)",
)
def test_simulated_misses_are_those_that_the_hardware_counts(run_under: Runner, pages: int) -> None:
    preset = own_preset()
    if preset is None:
        pytest.skip(f"no preset describes this processor ({counters()['microarchitecture']}); see docs/simulate-tlb.md")
    laps = max(1, ACCESSES // pages)
    chase = [str(paths.workload()), "pointer-chase", "--bytes", str(pages * 4096), "--stride", "4096"]
    known = CHASES[pages]
    assert simulated(pages, preset) == known
    for name, expected in zip(("tlb.hits", "tlb.walks"), known, strict=True):
        # The same program with one lap takes away what surrounds the chase.
        often, once = (
            run_under('pages = "4K"', [*chase, "--laps", str(n)], events=[name], cpus=[max(os.sched_getaffinity(0))])
            for n in (laps + 1, 1)
        )
        rate = (counted(often.succeeded(), name) - counted(once.succeeded(), name)) / (laps * pages)
        assert rate == pytest.approx(expected, abs=TOLERANCE), (name, preset)
