"""``model run`` with a description of its own: a guest's walks in two dimensions, and data caches beside the TLB."""

from __future__ import annotations

from pathlib import Path

import pytest
from playing import COMMAND, Machine
from test_model_run import asked, campaign

from pagelab.layouts import Layout
from pagelab.model_run.document import Simulated
from pagelab.model_run.predicting import predict_for
from pagelab.model_run.simulation import uncalibrated
from pagelab.simulate.tlb_runs import tlb
from pagelab.trace.capture import capture

DESCRIPTION = """\
[cache]
line = 64
memory_cycles = 200

[[cache.level]]
name = "L1d"
serves = "data"
size = "32K"
ways = 8
cycles = 4

[[cache.level]]
name = "L2"
size = "1M"
ways = 8
cycles = 14

[tlb]
walkers = 2

[[tlb.first]]
pages = ["4K", "2M"]
entries = 64
ways = 4

[[tlb.second]]
pages = ["4K", "2M"]
entries = 1024
ways = 8

[[tlb.walk_caches]]
spans = "2M"
entries = 32
ways = 4
"""
NESTED = """
[tlb.nested]
page = "4K"

[tlb.nested.tlb]
pages = ["4K"]
entries = 64
"""


def test_only_fitted_cycles_calibrate_and_only_without_caches(tmp_path: Path) -> None:
    """Regression: any description in a file counted as one of this machine."""
    here = tmp_path / "here.toml"
    plain = Simulated(processor=str(here), description="", caches=False, trace="t", references=1)
    here.write_text(DESCRIPTION)
    assert uncalibrated(plain, tmp_path) == f"{here} has no cycles that were fitted to timed walks"
    here.write_text(DESCRIPTION + '[[source]]\nwhat = "cycles"\nwhere = "here"\ncalibrated = true\n')
    assert uncalibrated(plain, tmp_path) is None
    assert "with --caches, walks cost" in (uncalibrated(plain.model_copy(update={"caches": True}), tmp_path) or "")
    assert uncalibrated(plain.model_copy(update={"processor": "zen-4"}), tmp_path) == "zen-4 as its makers describe it"


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("caches", [False, True])
def test_counts_are_those_of_the_description_as_it_is_told(
    caches: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pagelab.model_run.planning._MOST_REPEATS", 3)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", """echo '{"cycle_ns": 1.0}'""")
    trace, here = tmp_path / "gups.trace", tmp_path / "here.toml"
    command = [*COMMAND[:-1], "20000"]
    capture(command, trace, marker=True, pools=True, full=True)
    here.write_text(DESCRIPTION + NESTED)
    wanted = asked(trace, argv=command, processor=str(here), caches=caches, layouts=8, select="random")
    found, file = campaign(tmp_path, Machine(trace, noise=0.001), wanted)
    assert found.simulated is not None
    assert found.simulated.caches == caches
    warned = [one.message for one in found.told if one.kind == "uncalibrated"]
    assert [f"{here} has no cycles that were fitted to timed walks" in one for one in warned] == [True]
    by_name = {row.name: row.layout() for one in found.rounds for row in one.layouts}
    for row in file.layouts[:4]:
        policy = Layout("own", by_name[row.layout].tiles).policy()
        own = tlb(trace, here, policy, caches=caches).executions.row(0, named=True)
        assert (row.h, row.m, row.c) == (own["h"], own["m"], own["c"])
    small = next(row for row in file.layouts if row.layout == "4K")
    told = predict_for(file, tmp_path / "gups.model", None, "4K")
    assert (told.h, told.m, told.c) == (small.h, small.m, small.c)
    # A guest's walks read the host's tables as well: the same misses cost more.
    flat = tmp_path / "flat.toml"
    flat.write_text(DESCRIPTION)
    plain = tlb(trace, flat, Layout("4K", ()).policy(), caches=caches).executions.row(0, named=True)
    assert plain["m"] == small.m
    assert plain["c"] < 0.7 * small.c
