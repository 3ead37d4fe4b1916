"""What the library costs where every axis is left to the kernel, counted and not timed: the same in every run."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from harness.emulation import Emulator, system_calls
from harness.guests import Workshop
from harness.launching import Runner, open_to_all
from harness.packages import ROOT, need
from pagelab import paths

PHASES = ("start", "fork-exit", "failing-exec", "fork-failing-exec", "spawn", "memory", "exit")
AFTER_START = 0.005
"""Instructions beyond native, but for what a program that does nothing has."""
START = 3_000_000
"""Instructions of start and end: those of a program that does nothing."""
SQL = ROOT / "tests" / "data" / "programs" / "database.sql"
PYTHON = "/usr/bin/python3"
WORK = "d = {}\nfor i in range(300000):\n    d[i % 5000] = [i] * (i % 50)\nprint(len(d), sum(map(len, d.values())))"


@pytest.fixture
def emulator(tmp_path: Path, workshop: Workshop, run_under: Runner) -> Emulator:
    open_to_all(tmp_path)
    return Emulator(tmp_path, workshop, run_under)


def allowed() -> dict[str, int]:
    """The table of docs/preload.md: phase to system calls beyond the program's own."""
    section = (ROOT / "docs" / "preload.md").read_text().partition("\n## Costs\n")[2]
    rows = re.findall(r"^\| .* \(`([\w-]+)`\) \| (\d+) \|$", section, re.MULTILINE)
    return {name: int(number) for name, number in rows}


def test_system_calls_are_those_of_the_list(tmp_path: Path, workshop: Workshop, run_under: Runner) -> None:
    program = [str(workshop.build("call_costs"))]
    native = system_calls(program, tmp_path, run_under, preload=False)
    preloaded = system_calls(program, tmp_path, run_under, preload=True)
    assert len(native) == len(preloaded) == len(PHASES)
    assert allowed().keys() == set(PHASES)
    over, extra = {}, {}
    for name, without, having in zip(PHASES, native, preloaded, strict=True):
        assert without - having == {}, f"{name}: the program's own calls went missing"
        extra[name] = (having - without).total()
        if extra[name] > allowed()[name]:
            over[name] = f"{extra[name]}, {allowed()[name]} are allowed: {dict(having - without)}"
    assert over == {}
    assert extra["start"] > 0, "the library was not there"


@pytest.mark.by_turns(4)
@pytest.mark.parametrize("program", ["gzip", "sqlite3", "python3", "malloc-storm"])
def test_instructions_after_start_are_the_programs_own(program: str, emulator: Emulator, tmp_path: Path) -> None:
    if program == "python3" and not os.path.exists(PYTHON):  # noqa: PTH110
        pytest.skip("no system Python; run: apt-get install python3")
    text = tmp_path / "text"
    text.write_bytes(b"".join(b"%d %x\n" % (i * i, i * 7919) for i in range(150_000)))
    storm = [str(paths.workload()), "malloc-storm", "--bytes", "8M", "--operations", "300000", "--threads", "1"]
    command, stdin = {
        "gzip": ([need("gzip"), "-c", str(text)], "null"),
        "sqlite3": ([need("sqlite3"), "-batch", ":memory:"], str(SQL)),
        "python3": ([PYTHON, "-S", "-c", WORK], "null"),
        "malloc-storm": (storm, "null"),
    }[program]
    native = emulator.instructions(command, preload=False, stdin=stdin)
    assert native > 100_000_000, "too short to tell 0.5%"
    start = emulator.instructions(["/bin/true"], preload=True) - emulator.instructions(["/bin/true"], preload=False)
    extra = emulator.instructions(command, preload=True, stdin=stdin) - native
    print(f"{program}: {native:,} instructions, {extra:,} more with the library, {start:,} of them start and end")
    assert 10_000 < start < START
    assert abs(extra - start) < AFTER_START * native
