"""The layouts that a campaign runs: as many as planned, of every kind, and by what was measured where that decides."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from playing import Machine
from test_model_run import CLOCK, asked, campaign

from pagelab.layouts import Footprint, Layout
from pagelab.layouts.layout import TILE
from pagelab.layouts.windows import SHARES
from pagelab.model_run import choosing, planning
from pagelab.model_run.answer import facts
from pagelab.model_run.choosing import Space
from pagelab.model_run.document import Asked, Campaign, LayoutRow
from pagelab.model_run.estimate import Noise
from pagelab.model_run.run import run
from pagelab.model_run.simulation import Simulator
from pagelab.record import Record
from pagelab.study.plan import Condition

ANCHORS = ("4K", "2M")
SHORT = {"warnings": [{"kind": "placement-shortfall", "severity": "warning", "message": "short", "data": {}}]}


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", CLOCK)


def trained(found: Campaign) -> list[LayoutRow]:
    """Training layouts beside the anchors, in the order of the rounds."""
    rows = [row for one in found.rounds for row in one.layouts if row.role == "train"]
    return [row for row in rows if row.name not in ANCHORS]


def space_of(found: Campaign, directory: Path) -> Space:
    assert found.simulated is not None
    footprint = Footprint(tuple(found.footprint))
    misses = Simulator(directory, found.simulated).profile(footprint).misses
    return Space(footprint, misses, tuple(row.layout() for row in found.tests), found.asked.seed)


@pytest.mark.by_turns(4)
def test_moselect_goes_for_the_gaps_in_counts_that_were_measured(trace: Path, tmp_path: Path) -> None:
    """Regression: with counted events it ran its first layouts, and never a gap.

    The hardware is Haswell's simulation; layouts that did not run are only known by Broadwell's.
    """
    machine = Machine(trace, counts=True, noise=0.001)
    found, file = campaign(tmp_path, machine, asked(trace, counts="measured", select="moselect"))
    assert found.plan is not None
    assert (found.plan.layouts, found.plan.rounds, len(found.rounds)) == (14, 3, 3)
    names = [row.name for row in trained(found)]
    assert len(names) == len(set(names)) == 14 - len(ANCHORS)
    assert len([name for name in names if name.startswith("gap-")]) == 14 - planning.MOSELECT
    first = [row.layout() for row in found.rounds[0].layouts if row.role == "train"]
    measured = [(one, machine.simulated(one)["c"]) for one in first]
    wanted = choosing.by_gaps(space_of(found, tmp_path / "gups.model"), measured, 2, len(first))
    second = [row.layout() for row in found.rounds[1].layouts if row.role == "train" and row.name not in ANCHORS]
    assert second == wanted
    assert file.source == "counted"
    assert facts(found, file)[1].startswith("R: cycles of the window work, the median of the repeats; ")


@dataclass
class Splitting(Machine):
    """One of its layouts never gets its pages."""

    splits: str = "gap-9"

    def record(self, condition: Condition, layout: Layout, cycles: float, counts: dict[str, float]) -> Record:
        self.wrong = {"some": SHORT if condition.policy_name == self.splits else {}}
        return super().record(condition, layout, cycles, counts)


@pytest.mark.by_turns(4)
def test_a_gap_layout_that_is_left_out_gives_its_name_to_no_other(trace: Path, tmp_path: Path) -> None:
    """Names were counted from the layouts that were measured, so that two layouts had one."""
    machine = Splitting(trace, counts=True, noise=0.001)
    found, _ = campaign(tmp_path, machine, asked(trace, counts="measured", select="moselect"))
    assert [(one.layout, one.whole) for one in found.excluded] == [("gap-9", True)]
    names = [row.name for row in trained(found)]
    assert len(names) == len(set(names)) == 14 - len(ANCHORS)


@pytest.mark.parametrize(("knows_c", "rounds"), [(True, 1), (False, 4)])
def test_moselect_has_further_rounds_where_c_is_measured(knows_c: bool, rounds: int) -> None:
    noise = Noise.of({"4K": [1.0, 1.01], "2M": [0.9, 0.91]}, "median")
    wanted = Asked(argv=["x"], cwd="/", select="moselect", layouts=20)
    plan = planning.plan(wanted, noise, 0.1, 3600.0, 20, knows_c=knows_c)
    assert (plan.layouts, plan.rounds) == (20, rounds)
    shape = planning.shape("moselect", 20, 12, knows_c=knows_c)
    assert shape.first == (20 if knows_c else planning.MOSELECT)
    assert shape.first + sum(shape.later) == 20


@pytest.mark.by_turns(4)
def test_profile_runs_its_plan_with_all_kinds_of_windows_after_a_dry_run_too(trace: Path, tmp_path: Path) -> None:
    """Regression: 20 layouts were the first of 54, which slide with 20% of the misses alone; after --dry-run, the
    first of another campaign."""
    wanted = asked(trace, select="profile", layouts=None)
    at_once, _ = campaign(tmp_path / "at-once", Machine(trace, processor="broadwell", noise=0.001), wanted)
    assert at_once.plan is not None
    rows = trained(at_once)
    assert len(rows) + len(ANCHORS) == at_once.plan.layouts
    assert len({tuple(row.tiles) for row in rows}) == len(rows)
    for share in SHARES:
        assert any(row.name.startswith(f"sliding-{round(100 * share)}-") for row in rows)
    later = tmp_path / "later.model"
    planned = run(wanted, later, Machine(trace, processor="broadwell", noise=0.001).tools(), dry_run=True)
    assert planned.plan is not None
    assert planned.plan.layouts == at_once.plan.layouts
    done = run(wanted, later, Machine(trace, processor="broadwell", noise=0.001).tools())
    assert done.rounds[0].layouts == at_once.rounds[0].layouts


MISSES = np.random.default_rng(1).random(60)
WIDE = Space(Footprint(tuple(("anon", at * TILE) for at in range(60))), MISSES, (), 1)


@pytest.mark.parametrize("count", [12, 20, 36])
def test_a_number_of_windows_has_all_their_kinds(count: int) -> None:
    found = choosing.profiled(WIDE, count, 54)
    assert len(found) == len({one.tiles for one in found}) == count
    assert tuple(one.name for one in found[:2]) == ANCHORS
    kinds = ["random-", *(f"sliding-{round(100 * share)}-" for share in SHARES)]
    assert all(any(one.name.startswith(kind) for one in found) for kind in kinds)
    assert found == choosing.profiled(WIDE, count, 54)


def test_a_small_space_gives_the_windows_that_it_has() -> None:
    """Four tiles have eleven windows at most, and 20 are requested."""
    space = Space(Footprint(tuple(("anon", at * TILE) for at in range(4))), np.arange(1.0, 5.0), (), 1)
    found = choosing.profiled(space, 20, 54)
    assert {one.tiles for one in found} == {one.tiles for one in choosing.fixed("profile", space, 54)}


def test_the_fewest_windows_of_a_plan_are_no_error() -> None:
    """A plan may have six layouts, and the paper's campaigns have seven or more."""
    fewest = planning.FEWEST - planning.ANCHORS
    assert len(choosing.profiled(WIDE, fewest, 54)) == fewest
