"""Layouts of equal C: what a rule in C alone, and one that minds something else, make of them."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from playing import Machine
from test_model_run import CLOCK, asked

from pagelab.errors import BadInputError, MachineError
from pagelab.layouts import Footprint
from pagelab.model_run import document
from pagelab.model_run.ranging import NEAR, _compared, at_level, ranged, text
from pagelab.model_run.run import run
from pagelab.model_run.simulation import Simulator
from pagelab.study.progress import Silent


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    monkeypatch.setattr("pagelab.model_run.ranging.MOST_REPEATS", 4)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", CLOCK)


def planned(trace: Path, directory: Path, machine: Machine) -> None:
    run(asked(trace, select="random"), directory, machine.tools(), dry_run=True)


def test_layouts_at_a_level_have_its_c_and_differ(trace: Path, tmp_path: Path) -> None:
    planned(trace, tmp_path / "g", Machine(trace))
    campaign = document.read(tmp_path / "g")
    assert campaign is not None
    assert campaign.simulated is not None
    simulator = Simulator(tmp_path / "g", campaign.simulated)
    layouts, c, ends = at_level(Footprint(tuple(campaign.footprint)), simulator, 0.4, 1)
    assert len({one.tiles for one in layouts}) == len(layouts) >= 3
    by_hand = [one.c for one in simulator.counts(layouts)]
    assert by_hand == c
    least = min(simulator._known.values(), key=lambda one: one["c"])["c"]
    assert least == ends[0] < ends[1]
    assert max(c) - min(c) <= 2 * NEAR * (ends[1] - ends[0])
    assert simulator.counts([layouts[0]])[0].c > least


@pytest.mark.by_turns(4)
@pytest.mark.parametrize(("first_tiles", "real"), [(0.0, False), (2e6, True)])
def test_a_floor_is_told_from_noise(first_tiles: float, real: bool, trace: Path, tmp_path: Path) -> None:
    """R follows C alone, or also whether the first tile of the memory is large, which C does not tell."""
    machine = Machine(trace, lambda counts: 4e6 + 0.8 * counts["c"], "broadwell", noise=0.002)
    planned(trace, tmp_path / "g", machine)
    simulated = machine.simulated

    def with_place(layout):  # type: ignore[no-untyped-def]
        counts = simulated(layout)
        first = any(tile.start <= 2 << 20 < tile.end and tile.end < 200 << 20 for tile in layout.tiles)
        return {**counts, "c": counts["c"] + (first_tiles if first else 0.0)}

    machine.simulated = with_place  # type: ignore[method-assign]
    found = ranged(tmp_path / "g", 0.5, 5.0, machine.tools())
    assert (found.floor > found.noise_high) == real
    if real:
        assert 0.05 < found.floor < 0.2
    assert ("more than noise" in text(found).replace("no more than noise", "")) == real
    assert found.r_2m_s < found.r_4k_s + 1
    again = Machine(trace)
    assert ranged(tmp_path / "g", 0.5, 5.0, again.tools()) == found
    assert again.runs == 0


@pytest.mark.parametrize(("r", "floor"), [((1.48, 1.52), 0.0), ((1.52, 1.48), 0.04 / 3), ((1.42, 1.58), 0.08 / 3)])
def test_what_a_rule_in_c_makes_of_different_c_is_no_error(
    r: tuple[float, float], floor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: run times that are exactly R = 1 + C/span were told as an error of every model in C alone."""
    times = {"4K": 2.0, "2M": 1.0, "a": r[0], "b": r[1]}
    ran = [SimpleNamespace(layout=name, status="ok", short=False, r_s=t) for name, t in times.items() for _ in range(3)]
    monkeypatch.setattr("pagelab.model_run.executions.read", lambda _own, _window: ran)
    campaign: Any = SimpleNamespace(
        trial=SimpleNamespace(window=None), asked=SimpleNamespace(estimator="median"), workload="w"
    )
    space = Footprint((("anon", 0), ("anon", 2 << 20), ("anon", 4 << 20)))
    layouts = [space.at("a", [0, 1]), space.at("b", [2])]
    found = _compared(campaign, Path(), layouts, [1.48e9, 1.52e9], 0.5, (1e9, 2e9), Silent())
    assert found.floor == pytest.approx(floor, abs=1e-12)
    assert found.apart == pytest.approx(0.04)


@pytest.mark.by_turns(4)
def test_the_level_is_told_that_was_reached(trace: Path, tmp_path: Path) -> None:
    """50% is half of the way from 2M to 4K, not half of the walk cycles; tiles may allow only another level."""
    machine = Machine(trace, lambda counts: 4e6 + 0.8 * counts["c"], "broadwell")
    planned(trace, tmp_path / "g", machine)
    found = ranged(tmp_path / "g", 0.5, 5.0, machine.tools())
    r_s = 1e-9 * (4e6 + 0.8 * found.c)
    assert found.reached == pytest.approx((r_s - found.r_2m_s) / (found.r_4k_s - found.r_2m_s), abs=0.01)
    near, far = (text(found.model_copy(update={"reached": reached})) for reached in (0.51, 0.37))
    assert ", 51% of the way from 2M to 4K\n" in near
    assert ", 37% of the way from 2M to 4K; 50% was asked for\n" in far


def test_what_has_no_campaign_or_level_is_refused(trace: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="pagelab model run --into"):
        ranged(tmp_path, 0.5, 1.0, Machine(trace).tools())
    planned(trace, tmp_path / "g", Machine(trace))
    with pytest.raises(BadInputError, match="--at 99"):
        ranged(tmp_path / "g", 0.99, 1.0, Machine(trace).tools())
    with pytest.raises(BadInputError, match="give it --minutes"):
        ranged(tmp_path / "g", 0.5, 1e-5, Machine(trace).tools())


@pytest.mark.by_turns(4)
def test_another_seed_or_level_has_executions_of_its_own(trace: Path, tmp_path: Path) -> None:
    """Regression: they were told with the run times of other layouts, which had the same names."""
    machine = Machine(trace, lambda counts: 4e6 + 0.8 * counts["c"], "broadwell", noise=0.002)
    planned(trace, tmp_path / "g", machine)
    found = {}
    for level, seed in ((0.5, 1), (0.5, 2), (0.504, 1)):
        before = machine.runs
        told = ranged(tmp_path / "g", level, 5.0, machine.tools(), seed=seed)
        assert machine.runs - before == 4 * (len(told.layouts) + 2)
        for row in told.layouts:
            assert 1e9 * row.r_s == pytest.approx(4e6 + 0.8 * row.c, rel=0.02)
        found[level, seed] = told
    assert len(list((tmp_path / "g").glob("range-50-*"))) == 2
    assert len(list((tmp_path / "g").glob("range-50.4-*"))) == 1
    again = Machine(trace)
    for (level, seed), told in found.items():
        assert ranged(tmp_path / "g", level, 5.0, again.tools(), seed=seed) == told
    assert again.runs == 0


@pytest.mark.by_turns(4)
def test_more_minutes_add_executions_to_the_same_layouts(trace: Path, tmp_path: Path) -> None:
    """Three, then four of each; fewer minutes take none away. An execution takes a second, as the plan says."""
    directory = tmp_path / "g"
    planned(trace, directory, Machine(trace))
    campaign = document.read(directory)
    assert campaign is not None
    assert campaign.plan is not None
    assert campaign.simulated is not None
    plan = campaign.plan.model_copy(update={"run_s": 1.0})
    document.write(directory, campaign.model_copy(update={"plan": plan}))
    simulator = Simulator(directory, campaign.simulated)
    layouts, _, _ = at_level(Footprint(tuple(campaign.footprint)), simulator, 0.5, 1)
    runs = len(layouts) + 2
    for fitting, more, repeats in ((3, 3 * runs, 3), (4, runs, 4), (3, 0, 4)):
        machine = Machine(trace, processor="broadwell", noise=0.002)
        told = ranged(directory, 0.5, (fitting * runs + 0.5) / 60, machine.tools())
        assert machine.runs == more
        assert {row.repeats for row in told.layouts} == {repeats}
    assert len(list(directory.glob("range-*"))) == 1


def test_another_machine_or_description_is_refused(trace: Path, tmp_path: Path) -> None:
    directory = tmp_path / "g"
    planned(trace, directory, Machine(trace))
    machine = Machine(trace, host="there")
    with pytest.raises(MachineError, match="began on another machine"):
        ranged(directory, 0.5, 5.0, machine.tools())
    campaign = document.read(directory)
    assert campaign is not None
    assert campaign.simulated is not None
    other = campaign.simulated.model_copy(update={"description": "0"})
    document.write(directory, campaign.model_copy(update={"simulated": other}))
    here = Machine(trace)
    with pytest.raises(BadInputError, match="the description of broadwell has changed since the campaign was made"):
        ranged(directory, 0.5, 5.0, here.tools())
    assert machine.runs + here.runs == 0
