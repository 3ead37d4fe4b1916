"""Studies of frame policies: planned, judged before the first run, run for real, and read back from the store."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from fakes import record, tools

from harness.frames import BY_NAME
from pagelab import machine, paths
from pagelab.errors import BadInputError
from pagelab.record import Record
from pagelab.study import feasible
from pagelab.study.control import run_study
from pagelab.study.errors import SpecError
from pagelab.study.launching import local_tools
from pagelab.study.plan import Condition
from pagelab.study.planning import plan_file
from pagelab.study.store import Store

SPEC = """\
name = "colours"
executions = 2
warmups = 0
baseline = "kernel"

[[workload]]
name = "cat"
command = ["cat", "/proc/self/status"]

[[policy]]
name = "kernel"

[[policy]]
name = "coloured"
frames = { page-coloring = { colors = 64 } }
"""
REPLAY = """
[[policy]]
name = "replayed"
frames = { modulo = "m.json" }

[[policy]]
name = "own"
frames = { module = { path = "mine.so", colors = 4 } }
"""
MAP = """{"schema": "pagelab.framemap/1", "pid": 1, "colours": 4,
 "spans": [{"start": "0x600000000000", "pages": 1, "frames": [9], "colours": [1]}]}"""


def write(place: Path, text: str) -> Path:
    (place / "s.toml").write_text(text)
    return place / "s.toml"


def test_maps_and_modules_are_inputs_of_the_study(tmp_path: Path) -> None:
    spec = write(tmp_path, SPEC + REPLAY)
    (tmp_path / "m.json").write_text(MAP)
    (tmp_path / "mine.so").write_bytes(b"\x7fELF\xff")
    before = plan_file(spec, tmp_path / "out")
    assert sorted(before.inputs) == [str(tmp_path / "m.json"), str(tmp_path / "mine.so")]
    (tmp_path / "m.json").write_text(MAP.replace("[9]", "[10]"))
    assert plan_file(spec, tmp_path / "out").digest != before.digest


def test_a_map_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.so").write_bytes(b"")
    with pytest.raises(SpecError, match=r"cannot read .*m\.json: No such file"):
        plan_file(write(tmp_path, SPEC + REPLAY), tmp_path / "out")


def launcher_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    """Puts a shell script in the launcher's place, and forgets what the launcher has answered."""
    fake = tmp_path / "launcher"
    fake.write_text(f"#!/bin/sh\n{does}")
    fake.chmod(0o755)
    monkeypatch.setattr(paths, "launcher", lambda: fake)
    feasible._frames.cache_clear()


@pytest.fixture
def launcher_without_rights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher_that(
        tmp_path, monkeypatch, 'echo "pagelab-launch: cannot place frames: no rights; run: sudo" >&2\nexit 3\n'
    )


def test_whoever_would_place_the_frames_is_asked_before_the_first_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher_that(
        tmp_path, monkeypatch, f'echo "$@" >>{tmp_path}/asked\ncat >>{tmp_path}/asked\necho >>{tmp_path}/asked\n'
    )
    spec = SPEC.replace('name = "coloured"\n', 'name = "coloured"\nbackend = "auto"\n')
    described = machine.describe()
    for condition in plan_file(write(tmp_path, spec), tmp_path / "out").conditions:
        assert feasible.cannot(condition, described) is None
        assert feasible.cannot(condition, described) is None
    feasible._frames.cache_clear()
    words, request = (tmp_path / "asked").read_text().splitlines()
    assert words == "--frames -", "once for a policy, and only for one of frames"
    asked = tomllib.loads(json.loads(request)["policy_toml"])
    assert (asked["backend"], asked["frames"]["page-coloring"]["colors"]) == ("auto", 64)
    assert json.loads(request)["machine"] == described


@pytest.mark.parametrize(
    ("other", "judge"),
    [
        ('backend = "kernel"', "launcher"),
        ('backend = "auto"', "launcher"),
        ('backend = "library"', "refused"),
        ('backend = "kernel"\npages = "2M"', "refused"),
        ('backend = "auto"\nfetch = "prefault"', "refused"),
    ],
)
def test_a_study_without_the_library_may_leave_frames_to_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str, judge: str
) -> None:
    launcher_that(tmp_path, monkeypatch, f"cat >{tmp_path}/asked\n")
    spec = SPEC.replace("warmups = 0", 'warmups = 0\npreload = "never"').replace(
        'name = "coloured"\n', f'name = "coloured"\n{other}\n'
    )
    described = machine.describe()
    kernel, coloured = plan_file(write(tmp_path, spec), tmp_path / "out").conditions
    assert feasible.cannot(kernel, described) is None
    if judge == "refused":
        with pytest.raises(BadInputError, match='preload = "never" forbids the library'):
            feasible.cannot(coloured, described)
        return
    assert feasible.cannot(coloured, described) is None
    feasible._frames.cache_clear()
    assert json.loads((tmp_path / "asked").read_text())["preload"] == "never"


@pytest.mark.usefixtures("launcher_without_rights")
def test_what_a_run_would_refuse_is_left_out_before_the_first(tmp_path: Path) -> None:
    kernel, coloured = plan_file(write(tmp_path, SPEC), tmp_path / "out").conditions
    described = machine.describe()
    assert feasible.cannot(kernel, described) is None, "a policy that leaves frames to the kernel needs no rights"
    assert feasible.cannot(coloured, described) == "cannot place frames: no rights; run: sudo"
    feasible._frames.cache_clear()


def strategy(**pages: int) -> dict[str, Any]:
    names = ("requested", "placed", "fallback", "zero", "demand", "eager", "remapped", "copied", "ahead", "ahead_zero")
    names = (*names, "resident", "kept", "moved", "unplaced")
    counts = {f"{name}_pages": pages.get(name, 0) for name in names}
    return {"number": 0, "kind": "random", "colours": 4, "faults": 1, "moves": 1, **counts}


def test_placement_of_frames_is_in_the_store(tmp_path: Path) -> None:
    def behave(condition: Condition) -> Record:
        if condition.policy == "kernel":
            return record(condition)
        block = {
            "rights": "own",
            "placed_fraction": 0.75,
            "kept_fraction": 0.5,
            "engines_started": 1,
            "engines_failed": 0,
            "engine": None,
            "strategies": [strategy(moved=3), {**strategy(moved=4), "number": 1}],
        }
        return record(condition, frames=block)

    run_study(write(tmp_path, SPEC), tmp_path / "out", tools(behave))
    with Store.open(tmp_path / "out", write=False) as store:
        runs = store.runs()
    by_policy = {
        policy: runs.filter(pl.col("policy") == policy)
        .select("frames_placed_fraction", "frames_moved_pages")
        .unique()
        .rows()
        for policy in ("kernel", "coloured")
    }
    assert by_policy == {"kernel": [(None, None)], "coloured": [(0.75, 7)]}


@pytest.mark.by_turns(4)
@pytest.mark.skipif(BY_NAME["page-coloring"].missing() is not None, reason=BY_NAME["page-coloring"].missing() or "")
def test_a_study_of_frames_runs(tmp_path: Path) -> None:
    feasible._frames.cache_clear()
    run_study(write(tmp_path, SPEC), tmp_path / "out", local_tools())
    with Store.open(tmp_path / "out", write=False) as store:
        coloured = [one for one in store.records() if one.policy.name == "coloured"]
    assert len(coloured) == 2
    for one in coloured:
        assert one.outcome.status == "ok"
        assert one.frames is not None
        assert one.frames.engines_started >= 1
        [placed] = one.frames.strategies
        assert (placed.kind, placed.colours) == ("page-coloring", 64)
        assert placed.requested_pages == placed.placed_pages + placed.fallback_pages + placed.zero_pages > 0
