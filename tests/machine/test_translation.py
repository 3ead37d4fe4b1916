"""``doctor --probe-translation`` on latencies that the simulator computes for known hardware."""

from __future__ import annotations

import json
import subprocess
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagelab import paths
from pagelab.errors import BadInputError, MachineError
from pagelab.machine import probe_translation
from pagelab.machine.probe_translation import Chases, arguments, changes, judge, probe
from pagelab.machine.translation import steps
from pagelab.simulate import calibration
from pagelab.simulate.calibration import Measured, Step, description, preset_of, verdict
from pagelab.simulate.hardware import load
from pagelab.simulate.placements import History, placement_of_pages
from pagelab.simulate.tlb_runs import tlb

CYCLE_NS = 0.25
HIT = 7
BOOTED = History(turnover=0)
"""Where frames do not matter: nothing to draw."""
LENGTHS = [8, 16, 32, 48, 64, 72, 80, 96, 112, 128, 192, 256, 384, 512, 768, 1024, 1280, 1536, 1792, 2048]
LONGER = [2560, 3072, 3584, 4096, 5120, 6144, 8192, 12288]


def hardware(first: int, second: int, *, nested: str | None = None, large: int | None = None) -> dict[str, Any]:
    table: dict[str, Any] = {
        "first": [{"pages": ["4K"], "entries": first}, {"pages": ["2M"], "entries": large or first}],
        "second": [{"pages": ["4K", "2M"], "entries": second, "ways": 8}],
        "walk_caches": [{"spans": "2M", "entries": 32}],
        "entry_cycles": 30,
    }
    if nested:
        table["nested"] = {"page": nested}
    return {"name": "planted", "tlb": table}


def latency(planted: dict[str, Any], pages: int, step: int, page: str) -> float:
    """Cycles a load that the simulator has for a chase; hits in the second level cost ``HIT``."""
    return _latency(json.dumps(planted), pages, step, page)


@cache
def _latency(text: str, pages: int, step: int, page: str) -> float:
    planted = json.loads(text)
    order = np.random.default_rng(3).permutation(pages).astype(np.uint64) * np.uint64(step) + np.uint64(1 << 46)
    one, all_ = (
        tlb(np.tile(order, passes), planted, placement_of_pages(page), history=BOOTED).executions.row(0, named=True)
        for passes in (1, 3)
    )
    return float(HIT * (all_["h"] - one["h"]) + all_["c"] - one["c"]) / (2 * pages)


def chases(planted: dict[str, Any], *, rounds: int, noise: float, host_splits: bool = False) -> Chases:
    """What ``page-chase`` would print there: a load takes four cycles beside its translation, times noise."""
    rng = np.random.default_rng(11)
    samples = []
    by_kind = {
        "4K": ([*LENGTHS, *LONGER], lambda n: latency(planted, n, 4096, "4K")),
        "4K in 2M": (
            [*LENGTHS, *LONGER],
            lambda n: latency(planted, n, 4096, "4K" if host_splits else "2M"),
        ),
        "2M": ([n for n in LENGTHS if n <= 256], lambda n: latency(planted, n, 2 << 20, "2M")),
        "dense": ([*LENGTHS, *LONGER], lambda _n: 0.0),
    }
    for kind, (lengths, cost) in by_kind.items():
        for pages in lengths:
            for number, factor in enumerate(rng.lognormal(0, noise, rounds)):
                ns = (4 + cost(pages)) * CYCLE_NS * factor
                samples.append({"round": number, "kind": kind, "pages": pages, "chains": 1, "ns_per_load": ns})
    alone = latency(planted, 6144, 4096, "4K")
    for chains in (1, 2, 4, 8, 16):
        for kind, cycles in (("4K", max((4 + alone) / chains, alone / 3)), ("dense", 4 / chains)):
            for number in range(rounds):
                ns = cycles * CYCLE_NS
                samples.append({"round": number, "kind": kind, "pages": 6144, "chains": chains, "ns_per_load": ns})
    return Chases.model_validate(
        {
            "rounds": rounds,
            "seed": 1,
            "memories": [{"page": "4K", "bytes": 1 << 29, "huge_bytes": 0}],
            "cycle_ns": [CYCLE_NS] * rounds,
            "samples": samples,
        }
    )


@pytest.mark.parametrize(("first", "second"), [(64, 1536), (64, 512), (96, 4096), (72, 3072), (48, 1024)])
@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_planted_levels_are_found(first: int, second: int, noise: float) -> None:
    planted = hardware(first, second)
    host, (small, large), at_once = judge(chases(planted, rounds=11, noise=noise), virtual=False)
    assert host == "none"
    assert small.reference == "4K in 2M"
    one, two = small.steps[:2]
    assert one.most_that_fit == first
    assert one.first_beyond == min(n for n in LENGTHS if n > first)
    assert one.after.median == pytest.approx(HIT, abs=0.5)
    assert two.most_that_fit == second
    # A random order of more pages than entries, in sets: from one length more on, nothing is found.
    assert two.first_beyond == min(n for n in [*LENGTHS, *LONGER] if n > second)
    walk = latency(planted, 8192, 4096, "4K")
    assert next(w for w in small.walks if w.pages == 8192).cycles.median == pytest.approx(walk, rel=0.15)
    assert large.steps[0].most_that_fit == first
    assert at_once is not None
    assert at_once.median == pytest.approx(3, rel=0.3)


@pytest.mark.parametrize(("splits", "host"), [(True, "4K"), (False, "2M or larger")])
def test_the_hosts_pages_are_told(splits: bool, host: str) -> None:
    found, (small, _), _ = judge(chases(hardware(64, 1536), rounds=11, noise=0.05, host_splits=splits), virtual=True)
    assert found == host
    assert small.reference == ("dense" if splits else "4K in 2M")
    assert [step.most_that_fit for step in small.steps[:2]] == [64, 1536]


def test_hardware_without_an_end_in_reach_has_no_step() -> None:
    lengths = [8, 16, 32, 64, 128, 256]
    noise = np.random.default_rng(5).normal(0, 0.3, (15, len(lengths)))
    assert steps(lengths, noise) == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_alone_has_few_steps(seed: int) -> None:
    """A neighbour that makes every fourth sample up to five times as slow moves no median far enough."""
    rng = np.random.default_rng(seed)
    lengths = [*LENGTHS, *LONGER]
    loads = 4 * np.where(rng.random((15, len(lengths))) < 0.25, rng.uniform(1, 5, (15, len(lengths))), 1)
    assert steps(lengths, loads - 4) == []


def test_a_level_with_rounded_edges_lies_between_its_ends() -> None:
    lengths = [64, 128, 256, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 4096, 8192]
    share = np.clip((np.array(lengths) - 600) / 1200, 0, 1)
    costs = 7 + 50 * share + np.random.default_rng(2).normal(0, 0.5, (15, len(lengths)))
    found = steps(lengths, costs)
    assert found[0].most_that_fit < 1200 < found[-1].first_beyond <= 2048


def test_the_description_has_what_was_measured_and_costs_what_it_did() -> None:
    planted = hardware(48, 1024)
    walk = latency(planted, 8192, 4096, "4K")
    measured = Measured(Step(48, 64), Step(1024, 1280), Step(48, 64), ((8192, walk),), None)
    document = description(measured, "broadwell", name="measured", where="here")
    again = load(tomllib.loads(calibration.text(document)))
    table = again.needed("tlb")
    assert calibration.entries(table["first"], "4K") == 48
    assert calibration.entries(table["second"], "4K") == 1024
    assert table["walkers"] == load("broadwell").needed("tlb")["walkers"]
    assert calibration.predicted_cycles(document, 8192) == pytest.approx(walk, rel=0.1)
    assert again.needed("caches") == {**load("broadwell").needed("caches"), "name": "measured"}


def test_walks_just_beyond_the_second_level_do_not_stand_for_a_programs() -> None:
    """Regression: a description whose walks cost what the cheapest did, a fifth of those of programs."""
    walks = ((1792, 20.0), (4096, 43.0), (6144, 50.0), (8192, 110.0), (16384, 120.0))
    measured = Measured(Step(96, 112), Step(1024, 1792), None, walks, None)
    document = description(measured, "zen-5", name="measured", where="here")
    costs = [calibration.predicted_cycles(document, pages) for pages, _ in walks]
    assert costs[1] == pytest.approx(np.mean([43, 50, 110, 120]), rel=0.2)
    assert sum((costs[i] - walks[i][1]) / walks[i][1] for i in (1, 2)) > 0
    assert costs[4] < 120
    said = [one.what for one in load(document).sources if one.calibrated]
    assert said == ["cycles to read a table entry: fitted to walks over 4096 to 16384 pages (43.0 to 120.0 cycles)"]
    near = description(replace(measured, walks=walks[:2]), "zen-5", name="measured", where="here")
    assert load(near).calibrated
    near = description(replace(measured, walks=walks[:1]), "zen-5", name="measured", where="here")
    assert calibration.predicted_cycles(near, 8192) == pytest.approx(20, rel=0.2)


def test_a_description_without_a_walk_is_not_calibrated() -> None:
    """Regression: its source said "measured", and campaigns with it did not say that C is not calibrated."""
    measured = Measured(Step(96, 112), None, None, (), None)
    document = description(measured, "zen-5", name="measured", where="here")
    assert not load(tomllib.loads(calibration.text(document))).calibrated
    assert "entry" not in document["source"][0]["what"]
    assert not load("zen-5").calibrated


@pytest.mark.parametrize("host_page", [None, "4K", "2M"])
def test_a_guests_description_is_nested_and_costs_what_was_measured(host_page: str | None) -> None:
    measured = Measured(Step(96, 112), Step(3072, 3584), Step(96, 112), ((8192, 400.0),), host_page)
    document = description(measured, "zen-5", name="measured", where="here")
    assert document["tlb"].get("nested", {}).get("page") == host_page
    assert calibration.predicted_cycles(document, 8192) == pytest.approx(400, rel=0.1)


def test_a_preset_that_is_borne_out_keeps_its_arrays() -> None:
    measured = Measured(Step(64, 72), Step(1536, 1792), Step(32, 48), (), None)
    document = description(measured, "skylake", name="measured", where="here")
    stated = load("skylake").needed("tlb")
    assert load(document).needed("tlb")["first"] == stated["first"]
    assert load(document).needed("tlb")["second"] == stated["second"]
    told = verdict(measured, "skylake")
    assert told[0] == "first level, 4K pages: 64 entries, as skylake has"
    other = verdict(Measured(Step(96, 112), None, None, (), None), "skylake")
    assert other[0].endswith("skylake has 64 entries")
    assert "none was seen to end" in other[2]
    guest = verdict(Measured(Step(96, 112), None, None, (), "4K"), "zen-5")
    assert guest[1].endswith("cannot be seen, since the host splits such pages")
    assert verdict(measured, None) == []


def test_nothing_measured_describes_nothing() -> None:
    with pytest.raises(BadInputError, match="--rounds 40"):
        description(Measured(None, None, None, (), None), None, name="x", where="y")


@pytest.mark.parametrize(
    ("vendor", "family", "model", "name"),
    [
        ("GenuineIntel", 6, 79, "broadwell"),
        ("GenuineIntel", 6, 143, "sapphire-rapids"),
        ("AuthenticAMD", 23, 0x31, "zen-2"),
        ("AuthenticAMD", 25, 1, "zen-3"),
        ("AuthenticAMD", 25, 0x61, "zen-4"),
        ("AuthenticAMD", 26, 2, "zen-5"),
        ("GenuineIntel", 6, 1, None),
        ("Else", 1, 1, None),
    ],
)
def test_the_preset_is_known_by_the_processor(vendor: str, family: int, model: int, name: str | None) -> None:
    assert preset_of(f"vendor_id\t: {vendor}\ncpu family\t: {family}\nmodel\t\t: {model}\n") == name


def test_too_little_memory_is_told() -> None:
    with pytest.raises(MachineError, match="free -m"):
        arguments(rounds=5, seed=1, available_bytes=100 << 20)


def test_what_changed_since_is_told_and_only_that(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGELAB_STATE_DIR", str(tmp_path))

    def measured(planted: dict[str, Any], splits: bool) -> probe_translation.TranslationFile:
        def fake(_asked: Sequence[str]) -> Chases:
            return chases(planted, rounds=9, noise=0.05, host_splits=splits)

        return probe(measure=fake, virtual="kvm")

    first = measured(hardware(64, 1536), False)
    assert probe_translation.store(first)[1] is None
    again = measured(hardware(64, 1536), False)
    before = probe_translation.store(again)[1]
    assert before == first
    assert changes(first, again) == []
    moved = changes(first, measured(hardware(96, 1024), True))
    assert moved[0] == "the host's pages: 2M or larger, now 4K"
    assert any(line.startswith("step 1 of 4K pages: 64-72, now") for line in moved)


def test_the_workload_measures_all_that_it_is_asked_for() -> None:
    asked = ["--bytes=64M", "--pages=8,64,20000", "--large-pages=8,64", "--chains=1,2,16", "--chain-pages=64"]
    done = subprocess.run(
        [str(paths.workload()), "page-chase", *asked, "--rounds=2"], capture_output=True, text=True, check=True
    )
    found = Chases.model_validate(json.loads(done.stdout))
    keys = {(one.kind, one.pages, one.chains) for one in found.samples}
    # 20,000 pages of 4 KiB, and 64 of 2 MiB, are more than 64 MiB.
    assert {("4K", 8, 1), ("4K", 64, 1), ("4K", 64, 2), ("4K", 64, 16)} <= keys
    assert all(pages <= 64 for _, pages, _ in keys)
    assert ("2M", 64, 1) not in keys
    assert all(one.ns_per_load > 0 for one in found.samples)
    assert len(found.cycle_ns) == 2
    refused = subprocess.run(
        [str(paths.workload()), "page-chase", "--pages=8", "--chains=3"], capture_output=True, text=True, check=False
    )
    assert refused.returncode == 2
    assert "1, 2, 4, 8, 16" in refused.stderr


def test_the_command_measures_stores_compares_and_describes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagelab.cli import probe_translation as command

    monkeypatch.setenv("PAGELAB_STATE_DIR", str(tmp_path))
    monkeypatch.setattr(probe_translation, "chase", lambda _asked: chases(hardware(64, 1536), rounds=9, noise=0.02))
    file = tmp_path / "here.toml"
    for _ in range(2):
        command.probe_translation(as_json=False, rounds=9, description=file, processor="skylake")
    said = capsys.readouterr().out
    assert "first level, 4K pages: 64 entries, as skylake has" in said
    assert "nothing beyond the intervals" in said
    assert str(file) in said
    assert calibration.entries(load(file).needed("tlb")["second"], "4K") == 1536
    assert load(file).calibrated
    command.probe_translation(as_json=True, rounds=9, description=None, processor=None)
    assert json.loads(capsys.readouterr().out)["schema"] == "pagelab.translation/1"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rounds": 3}, "allowed: 6 to"),
        ({"processor": "z80"}, "allowed: broadwell"),
        ({"description": Path("/nowhere/x.toml")}, "no directory /nowhere"),
    ],
)
def test_what_the_command_cannot_do_is_told_before_it_measures(given: dict[str, Any], said: str) -> None:
    from pagelab.cli import probe_translation as command

    defaults: dict[str, Any] = {"as_json": False, "rounds": None, "description": None, "processor": None}
    with pytest.raises(BadInputError, match=said):
        command.probe_translation(**(defaults | given))
