"""The design over kinds of memory: planted effects on a machine that is played, and a small program that runs."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playing import COMMAND, Machine, SlowSimulation, layout_of
from test_model_run import CLOCK

from pagelab import paths
from pagelab.errors import BadInputError, MachineError
from pagelab.model_run.document import Asked, Campaign
from pagelab.model_run.kinds import by_block, kinds, of_model
from pagelab.model_run.kinds_answer import following, text, verdict
from pagelab.model_run.kinds_document import Effect, KindsDocument, read
from pagelab.record import Record
from pagelab.study.plan import Condition

pytestmark = pytest.mark.needs_page_sizes

FEW = (
    "import sys\nfrom pagelab.model_run import kinds\nkinds.MOST_BLOCKS = 10\n"
    "from pagelab.cli import main\nsys.argv = ['pagelab', *sys.argv[1:]]\nmain()\n"
)
"""The command, with few executions however many fit the minutes: a busy machine needs these for a few."""
TILES = {"heap": 10, "anon": 20, "arenas": 5}
_PLACES = {"heap": 0x6600_0000_0000, "anon": 0x6700_0000_0000, "arenas": 0x6800_0000_0000}


@pytest.fixture(autouse=True)
def _few_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing runs here, so that minutes hold thousands of executions."""
    monkeypatch.setattr("pagelab.model_run.kinds.MOST_BLOCKS", 12)
    monkeypatch.setattr("pagelab.model_run.executions._CLOCK", CLOCK)


@dataclass
class Kinds(Machine):
    """A machine on which page sizes of each kind of memory change times by known factors."""

    factors: dict[frozenset[str], float] = field(default_factory=dict)
    """Of those with all these kinds in 2M pages."""
    kib: dict[str, int] = field(default_factory=lambda: {kind: 2048 * tiles for kind, tiles in TILES.items()})
    """Touched, by kind."""
    no_huge: tuple[str, ...] = ()
    """Kinds that the kernel gives no 2M page."""

    def run(self, condition: Condition, stderr: Path) -> Record:
        large = frozenset(tile.pool for tile in layout_of(condition.request.policy_toml).tiles)
        self.rule = lambda _: 2e7 * self._factor(large)
        record = super().run(condition, stderr)
        assert record.processes is not None
        rows = [self._row(kind, kind in large) for kind, kib in self.kib.items() if kib]
        data = record.model_dump(mode="json", by_alias=True)
        data["processes"][0]["placement"] = rows
        return Record.model_validate(data)

    def _factor(self, large: frozenset[str]) -> float:
        return float(np.prod([factor for which, factor in self.factors.items() if which <= large]))

    def _row(self, kind: str, huge: bool) -> dict[str, Any]:
        size = self.kib[kind] << 10
        page = (2 << 20) if huge and kind not in self.no_huge else 4096
        return {
            "region": kind, "asked": "2M" if huge else "4K", "start": _PLACES[kind], "end": _PLACES[kind] + size,
            "mapped_bytes": size, "resident_bytes": size, "by_size": [{"page_bytes": page, "bytes": size}],
            "whole_touched_tiles": size >> 21, "tiles_as_asked": size >> 21,
        }  # fmt: skip

    def simulated(self, layout: object) -> dict[str, float]:
        return {"h": 1.0, "m": 2.0, "c": 3.0 + len(getattr(layout, "tiles", ()))}


def asked(**changes: Any) -> Asked:
    usual: dict[str, Any] = {"argv": COMMAND, "cwd": str(Path.cwd()), "minutes": 5.0, "select": "random"}
    return Asked(**{**usual, **changes})


def effects(found: KindsDocument) -> dict[str, float]:
    return {"×".join(one.kinds): one.percent for one in found.effects}


def test_planted_effects_come_back(tmp_path: Path) -> None:
    """Heap 0.86, anon 0.95, and both together another 0.9; arenas nothing; 0.5% of noise."""
    planted = {frozenset({"heap"}): 0.86, frozenset({"anon"}): 0.95, frozenset({"heap", "anon"}): 0.9}
    machine = Kinds(Path("none"), noise=0.005, factors=planted)
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert found.blocks == 12
    assert machine.runs == 2 + 12 * 8
    # Main effects are averaged over the other kinds: each has the root of what both change together.
    expected = {"heap": 0.86 * 0.9**0.5, "anon": 0.95 * 0.9**0.5, "heap×anon": 0.9}
    for one in found.effects:
        name = "×".join(one.kinds)
        assert one.seen == (name in expected)
        assert one.percent == pytest.approx(100 * (expected.get(name, 1.0) - 1), abs=0.6)
        assert one.low_percent is not None
        assert one.high_percent is not None
        assert one.low_percent < one.percent < one.high_percent
    assert found.verdict.startswith("heap and anon decide it: heap −18.")
    assert "; arenas: no effect seen; heap and anon together take" in found.verdict
    assert "less than their own effects make" in found.verdict
    assert [one.name for one in found.combinations][:2] == ["4K", "arenas"]
    times = {one.name: one.r for one in found.combinations}
    assert times["heap+anon+arenas"] / times["4K"] == pytest.approx(0.86 * 0.95 * 0.9, rel=0.01)
    assert found.next.startswith("pagelab advise --minutes 5 -- ")


def test_blocks_that_are_slow_as_a_whole_hide_no_effect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks differ by up to a half, the effect is 3%: within blocks it is seen."""
    machine = Kinds(Path("none"), noise=0.002, factors={frozenset({"anon"}): 0.97})
    factor = machine._factor

    def slowed(large: frozenset[str]) -> float:
        block = (machine.runs - 3) // 8
        return factor(large) * (1 + 0.5 * (block % 3))

    monkeypatch.setattr(machine, "_factor", slowed)
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert [one.kinds for one in found.effects if one.seen] == [["anon"]]
    assert found.verdict.startswith("anon decides it: −3.")
    assert found.verdict.endswith("; heap and arenas: no effect seen")


def test_nothing_is_found_where_nothing_is(tmp_path: Path) -> None:
    found = kinds(asked(), tmp_path / "g.kinds", Kinds(Path("none"), noise=0.02).tools())
    assert not any(one.seen for one in found.effects)
    assert found.verdict.startswith("no effect of 2M pages was seen: heap ")
    assert found.next.startswith(f"pagelab model kinds --minutes 20 --into {tmp_path / 'g-longer.kinds'} -- ")


def test_kinds_that_are_hardly_used_are_left_out_and_told(tmp_path: Path) -> None:
    machine = Kinds(Path("none"), noise=0.002, factors={frozenset({"anon"}): 0.9})
    machine.kib = {"heap": 2047, "anon": 40960, "arenas": 0}
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert [(one.kind, one.left_out) for one in found.kinds] == [
        ("heap", "hardly used"), ("anon", None), ("arenas", "hardly used"),
    ]  # fmt: skip
    assert [one.name for one in found.combinations] == ["4K", "anon"]
    assert found.verdict.startswith("anon in 2M pages: −10.")
    assert found.verdict.endswith("; heap and arenas: hardly used")
    machine.kib = {"heap": 2047, "anon": 2047, "arenas": 2047}
    with pytest.raises(BadInputError, match=r"less than one 2M page of each kind of memory.*heap 2047 KiB"):
        kinds(asked(), tmp_path / "little.kinds", machine.tools())


def test_a_kind_without_2m_pages_is_told(tmp_path: Path) -> None:
    machine = Kinds(Path("none"), no_huge=("arenas",), noise=0.001, factors={frozenset({"heap"}): 1.1})
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert {one.kind: one.left_out for one in found.kinds}["arenas"] == "the kernel gave it no 2M page"
    assert len(found.combinations) == 4
    assert found.verdict.startswith("heap decides it: +1")
    assert found.verdict.endswith("arenas: the kernel gave it no 2M page")
    assert found.next.startswith("pagelab report ")


def test_counted_events_stand_beside_r(tmp_path: Path) -> None:
    machine = Kinds(Path("none"), counts=True, noise=0.001, factors={frozenset({"heap"}): 0.8})
    found = kinds(asked(counts="measured"), tmp_path / "g.kinds", machine.tools())
    assert (found.counts, found.unit) == ("counted", "cycles")
    assert {one.name: one.c for one in found.combinations} == {
        one.name: 3.0 + len(one.large) for one in found.combinations
    }
    assert "H, M, C: counted" in text(found)


def test_simulated_counts_are_of_the_same_layouts(trace: Path, tmp_path: Path) -> None:
    """The program has anonymous memory only: in 2M pages its misses go, and they are those of a plain simulation."""
    machine = Machine(trace, processor="broadwell", noise=0.001)
    wanted = asked(counts="simulated", processor="broadwell", trace=str(trace))
    found = kinds(wanted, tmp_path / "g.kinds", machine.tools())
    small, large = found.combinations
    assert found.counts == "simulated"
    assert small.m is not None
    assert large.m is not None
    assert small.m > 10 * large.m
    assert effects(found)["anon"] < 0


@pytest.mark.by_turns(4)
def test_what_was_stopped_goes_on_and_is_told_the_same_again(tmp_path: Path) -> None:
    machine = Kinds(Path("none"), noise=0.005, factors={frozenset({"heap"}): 0.9})
    first = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    again = Kinds(Path("none"))
    assert kinds(asked(), tmp_path / "g.kinds", again.tools()) == first
    assert again.runs == 0
    assert read(tmp_path / "g.kinds") == first
    with pytest.raises(BadInputError, match=r"another request \(different: minutes\).*--into DIR"):
        kinds(asked(minutes=6.0), tmp_path / "g.kinds", again.tools())


def test_executions_that_fail_take_their_block_with_them(tmp_path: Path) -> None:
    def fails(run: int) -> dict[str, Any]:
        failed = {"outcome": {"status": "failed", "exit_code": 1, "signal": None}}
        return failed if run == 2 + 8 * 3 + 1 else {}

    wrong: dict[str, Callable[[int], dict[str, Any]]] = {"none": fails, "some": fails, "all": fails}
    machine = Kinds(Path("none"), noise=0.001, wrong=wrong, factors={frozenset({"heap"}): 0.9})
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert found.blocks == 11
    assert any(one.kind == "left-out" and "1 executions" in one.message for one in found.told)


def test_minutes_that_are_too_few_are_refused(tmp_path: Path) -> None:
    machine = Kinds(Path("none"))
    with pytest.raises(BadInputError, match=r"9 of each of 8 combinations.*--minutes ([0-9.]+)") as told:
        kinds(asked(minutes=1e-4), tmp_path / "g.kinds", machine.tools())
    enough = re.search(r"--minutes ([0-9.]+)", str(told.value))
    assert enough is not None
    found = kinds(asked(minutes=float(enough[1])), tmp_path / "g.kinds", machine.tools())
    assert found.blocks >= 9
    # Once the design has run, its minutes are what they were.
    with pytest.raises(BadInputError, match=r"another request \(different: minutes\)"):
        kinds(asked(minutes=6.0), tmp_path / "g.kinds", machine.tools())


def test_what_a_refusal_advises_is_accepted_in_its_directory(tmp_path: Path) -> None:
    """Regression: the same command without what was refused was "another request"."""
    with pytest.raises(MachineError, match="--counts measured: this machine does not count"):
        kinds(asked(counts="measured"), tmp_path / "g.kinds", Kinds(Path("none")).tools())
    kinds(asked(), tmp_path / "g.kinds", Kinds(Path("none")).tools())
    with pytest.raises(BadInputError, match=r"another request \(different: counts\)"):
        kinds(asked(counts="measured"), tmp_path / "g.kinds", Kinds(Path("none")).tools())


def test_a_simulation_is_part_of_the_minutes(trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the counts were simulated after executions that had filled the minutes already."""
    slow = SlowSimulation(120.0).install(monkeypatch)
    machine = Machine(trace, processor="broadwell", noise=0.001)
    wanted = asked(counts="simulated", processor="broadwell", trace=str(trace), minutes=3.0)
    simulating = r"can find an effect, and simulating their counts takes about 4 min 00 s: give it --minutes"
    with pytest.raises(BadInputError, match=rf"{simulating} ([0-9.]+)") as told:
        kinds(wanted, tmp_path / "g.kinds", machine.tools())
    assert machine.runs == 2
    assert not slow.passes
    enough = re.search(r"--minutes ([0-9.]+)", str(told.value))
    assert enough is not None
    minutes = float(enough[1])
    found = kinds(wanted.model_copy(update={"minutes": minutes}), tmp_path / "g.kinds", machine.tools())
    assert found.counts == "simulated"
    assert slow.passes == [2]
    assert slow.at < 60 * minutes


def test_blocks_are_those_with_every_combination() -> None:
    assert by_block([], ["4K", "anon"], counted=False).shape == (0, 2)


def effect(percent: float, *kinds: str, p: float = 0.001) -> Effect:
    ends = {"low_percent": percent - 1, "high_percent": percent + 1}
    return Effect(kinds=list(kinds), percent=percent, p=p, p_holm=p, **ends)


@pytest.mark.parametrize(
    ("effects", "told"),
    [
        ([effect(-14, "heap"), effect(-0.2, "anon", p=0.9)], "heap decides it: −14.0% (−15.0% to −13.0%); anon: no"),
        ([effect(-14, "heap"), effect(-2, "anon")], "heap decides it: −14.0% (−15.0% to −13.0%); anon: −2.0% (−3.0%"),
        ([effect(-4, "heap"), effect(-14, "anon")], "anon and heap decide it: anon −14.0% (−15.0% to −13.0%), heap"),
        ([effect(0.5, "heap", p=0.06)], "no effect of 2M pages was seen: heap −0.50% to +1.5%"),
        ([effect(9, "anon")], "anon in 2M pages: +9.0%"),
        (
            [effect(-9, "heap"), effect(-9, "anon"), effect(4, "heap", "anon")],
            "heap and anon together take 4.0% more than their own effects make",
        ),
    ],
)
def test_the_sentence_names_what_decides(effects: list[Effect], told: str) -> None:
    assert told in verdict([], effects, 12, 9)


def test_fewer_whole_blocks_than_can_find_an_effect_tell_nothing(tmp_path: Path) -> None:
    """Regression: "no effect of 2M pages was seen", where none could have been: each of six blocks lost one execution,
    and six whole ones are left, of the nine that eight combinations need."""

    def fails(run: int) -> dict[str, Any]:
        failed = {"outcome": {"status": "failed", "exit_code": 1, "signal": None}}
        return failed if (run - 3) % 8 == 0 and 2 < run <= 2 + 6 * 8 else {}

    wrong: dict[str, Callable[[int], dict[str, Any]]] = {"none": fails, "some": fails, "all": fails}
    machine = Kinds(Path("none"), noise=0.001, wrong=wrong, factors={frozenset({"heap"}): 0.5})
    found = kinds(asked(), tmp_path / "g.kinds", machine.tools())
    assert found.blocks == 6
    assert found.verdict == "cannot tell: 6 blocks are whole, and 9 are the fewest with which an effect can be found"
    assert found.next.startswith("pagelab model kinds --minutes 20 ")


def test_the_next_command_measures_the_same_and_for_a_day_at_most(tmp_path: Path) -> None:
    wanted = asked(minutes=600.0, counts="simulated", processor="broadwell", window="the work", timeout_s=7.5, seed=3)
    campaign = Campaign(asked=wanted, workload="gups", machine={})
    command, why = following(campaign, [effect(0.5, "heap", p=0.5)], tmp_path / "g.kinds")
    words = shlex.split(command)
    options, typed = words[3 : words.index("--")], words[words.index("--") + 1 :]
    assert words[:3] == ["pagelab", "model", "kinds"]
    assert typed == COMMAND
    assert dict(zip(options[::2], options[1::2], strict=True)) == {
        "--minutes": "1440",
        "--counts": "simulated",
        "--processor": "broadwell",
        "--window": "the work",
        "--timeout": "7.5",
        "--seed": "3",
        "--into": str(tmp_path / "g-longer.kinds"),
    }
    assert why == "2.4 times the executions, to see smaller effects"


@pytest.mark.parametrize(
    "option",
    [("--timeout", "5"), ("--counts", "simulated"), ("--processor", "broadwell"), ("--window", "work")],
    ids=" ".join,
)
def test_a_model_has_its_own_way_to_be_measured(option: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "g.model").mkdir()
    words = [sys.executable, "-m", "pagelab", "model", "kinds", *option, "g.model"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 2
    assert f"{option[0]}: g.model has its own" in done.stderr


def test_what_is_no_campaign_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="pagelab model run --into"):
        of_model(tmp_path, 1.0, 1)
    (tmp_path / "kinds.json").write_text('{"schema": "other"}')
    with pytest.raises(BadInputError, match=r"is no pagelab\.model-kinds/1"):
        read(tmp_path)
    assert read(tmp_path / "none") is None


def large_blocks_are_free() -> bool:
    """Whether the buddy allocator has 2M blocks for several executions of 32 MiB, compacted if that is allowed."""

    def blocks() -> int:
        rows = [line.split()[4:] for line in Path("/proc/buddyinfo").read_text().splitlines()]
        return sum(int(count) << order for row in rows for order, count in enumerate(row[9:]))

    if blocks() < 200 and os.geteuid() == 0:
        with suppress(OSError):
            Path("/proc/sys/vm/compact_memory").write_text("1")
    return blocks() >= 200


def test_a_program_from_the_command_to_the_page(tmp_path: Path) -> None:
    """A few seconds of a real program: its design, what is printed, the same again, and a page with both figures."""
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    if not large_blocks_are_free():
        pytest.skip("free memory is fragmented; run: echo 1 | sudo tee /proc/sys/vm/compact_memory")

    def pagelab(*words: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", FEW, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)

    program = [paths.workload(), "gups", "--bytes", "32M", "--updates", "200000"]
    done = pagelab("model", "kinds", "--minutes", "2", "--into", "g.kinds", "--", *program)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "anon" in lines[0]
    assert "heap and arenas: hardly used" in lines[0]
    assert any(line.startswith("R: processor time of the window work") for line in lines)
    assert any(line.startswith("next: pagelab ") for line in lines)
    shown = pagelab("model", "report", "g.kinds", "--out", "page")
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.startswith(done.stdout)
    assert (tmp_path / "page" / "effects.svg").read_text().startswith("<svg")
    assert (tmp_path / "page" / "combinations.svg").exists()
    assert "Which kind of memory" in (tmp_path / "page" / "index.html").read_text()
    found = json.loads(pagelab("model", "report", "g.kinds", "--json").stdout)
    assert found == json.loads((tmp_path / "page" / "report.json").read_text())
    assert found["blocks"] >= 6
    study = pagelab("report", "g.kinds/runs", "--out", "study")
    assert study.returncode == 0, study.stderr
