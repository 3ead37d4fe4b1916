"""Whatever dies, and whenever: no process stays, none hangs, no setting stays changed, no run directory is left."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from harness.frames import BY_NAME, FramesPolicy, possible
from harness.guests import Workshop
from harness.launching import Runner
from harness.packages import need
from harness.policies import THP
from harness.processes import is_gone, parent_of, processes_named
from pagelab import machine, paths

PATIENCE_S = 30.0
SETTINGS = [
    Path("/proc/sys/vm/compact_unevictable_allowed"),
    Path("/proc/sys/vm/unprivileged_userfaultfd"),
    Path("/proc/sys/vm/max_map_count"),
    THP / "enabled",
    THP / "defrag",
    *THP.glob("hugepages-*/enabled"),
]


def settings() -> dict[Path, str]:
    return {path: path.read_text() for path in SETTINGS if path.exists()}


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, what
        time.sleep(0.002)


def programs(marker: str) -> list[int]:
    """Processes of the guest itself: pagelab has its command line among its own arguments."""
    found = []
    for pid in processes_named(marker):
        with contextlib.suppress(OSError):
            found += [pid] * (Path(f"/proc/{pid}/exe").readlink().name == "race")
    return found


@dataclass
class Started:
    """A run in progress: the program (with its forks), the launcher's two processes, and who called them."""

    caller: subprocess.Popen[bytes]
    marker: str
    program: int
    launchers: list[int]
    run_directory: Path

    def everyone(self) -> list[int]:
        return [self.caller.pid, *self.launchers, *processes_named(self.marker)]


def request(policy: FramesPolicy, argv: list[str], place: Path) -> dict[str, object]:
    return {
        "schema": "pagelab.request/1",
        "argv": argv,
        "policy_toml": policy.toml,
        "machine": machine.describe(),
        "library": str(paths.library()),
        "stdin": "null",
        "stdout": str(place / "stdout"),
        "stderr": str(place / "stderr"),
        "timeout_s": 120.0,
        "record": str(place / "record.json"),
    }


def begin(command: list[str], marker: str, place: Path, document: dict[str, object] | None = None) -> Started:
    """Starts ``command`` (the launcher, or pagelab itself); returns when the program runs, which ``marker`` tells."""
    with (place / "said").open("wb") as said:
        caller = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=said, stderr=said)
    assert caller.stdin is not None
    caller.stdin.write(json.dumps(document).encode() if document else b"")
    caller.stdin.close()
    until(lambda: bool(programs(marker)) or caller.poll() is not None, "the program does not start")
    assert caller.poll() is None, (place / "said").read_text()
    family = set(programs(marker))
    parents = {pid: parent_of(pid) for pid in family}
    program = min(pid for pid, parent in parents.items() if parent is not None and parent not in family)
    launchers, pid = [], parents[program]
    while pid is not None and pid not in (caller.pid, 1):
        launchers.append(pid)
        pid = parent_of(pid)
    environment = Path(f"/proc/{program}/environ").read_bytes().split(b"\0")
    plan = next(word.partition(b"=")[2] for word in environment if word.startswith(b"PAGELAB_PLAN="))
    return Started(caller, marker, program, launchers, Path(os.fsdecode(plan)).parent)


def kill(started: Started, chance: random.Random) -> str:
    """Somebody dies, or is stopped first; returns a story."""
    victims = {"program": started.program, "caller": started.caller.pid}
    victims |= {f"launcher-{i}": pid for i, pid in enumerate(started.launchers)}
    name = chance.choice(sorted(victims))
    story = f"SIGKILL to {name}"
    try:
        if chance.random() < 0.3:
            stopped = chance.choice(sorted(victims))
            os.kill(victims[stopped], signal.SIGSTOP)
            time.sleep(chance.random() * 0.03)
            if chance.random() < 0.5 or stopped != name:
                os.kill(victims[stopped], signal.SIGCONT)
            story = f"SIGSTOP to {stopped}, then {story}"
        os.kill(victims[name], signal.SIGKILL)
    except ProcessLookupError:
        story += " (gone already)"
    return story


def nothing_is_left(started: Started, everyone: list[int], before: dict[Path, str], story: str) -> None:
    until(lambda: not processes_named(started.marker), f"{story}: the program is left")
    until(lambda: all(map(is_gone, everyone)), f"{story}: a launcher is left")
    until(lambda: not started.run_directory.exists(), f"{story}: {started.run_directory} is left")
    until(lambda: settings() == before, f"{story}: a setting is left changed")


def cycles(policy: FramesPolicy, count: int, seed: int, workshop: Workshop, place: Path, *, command: bool) -> None:
    """``command``: through ``pagelab run``; else through the launcher alone."""
    chance, before = random.Random(seed), settings()
    guest = str(workshop.build("frames/race"))
    for cycle in range(count):
        marker = f"{os.getpid()}{seed:02}{cycle:04}"
        argv = [guest, str(chance.choice([1, 2, 6])), "100000", marker]
        if command:
            toml = place / "policy.toml"
            toml.write_text(policy.toml)
            pagelab = [sys.executable, "-m", "pagelab", "run", "--policy", str(toml), "--", *argv]
            started = begin(pagelab, marker, place)
        else:
            started = begin([str(paths.launcher())], marker, place, request(policy, argv, place))
        time.sleep(chance.random() ** 2 * 0.2)  # most of them early: while the library starts
        everyone = started.everyone()
        story = f"cycle {cycle}, {kill(started, chance)}"
        started.caller.wait(PATIENCE_S)
        nothing_is_left(started, everyone, before, story)


@pytest.mark.parametrize("name", ["page-coloring", "bin-hopping", "pinned"])
def test_killed_at_random_moments(name: str, workshop: Workshop, tmp_path: Path) -> None:
    cycles(possible(BY_NAME[name]), 12, 1, workshop, tmp_path, command=False)


def test_killed_with_the_command_at_random_moments(workshop: Workshop, tmp_path: Path) -> None:
    cycles(possible(BY_NAME["page-coloring"]), 4, 2, workshop, tmp_path, command=True)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", ["page-coloring", "bin-hopping", "modulo", "random", "pinned", "several"])
def test_killed_at_random_moments_long(name: str, workshop: Workshop, tmp_path: Path) -> None:
    cycles(possible(BY_NAME[name]), 200, 3, workshop, tmp_path, command=False)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_killed_with_the_command_at_random_moments_long(workshop: Workshop, tmp_path: Path) -> None:
    cycles(possible(BY_NAME["page-coloring"]), 50, 4, workshop, tmp_path, command=True)


@pytest.mark.parametrize("name", ["page-coloring", "bin-hopping"])
def test_stopped_and_continued_again_and_again(name: str, workshop: Workshop, tmp_path: Path) -> None:
    """SIGSTOP in the middle of faults: the program goes on where it was."""
    marker, chance = f"{os.getpid()}777", random.Random(5)
    argv = [str(workshop.build("frames/race")), "4", "1500", marker]
    policy = possible(BY_NAME[name])
    started = begin([str(paths.launcher())], marker, tmp_path, request(policy, argv, tmp_path))
    while started.caller.poll() is None and not is_gone(started.program):
        for number in (signal.SIGSTOP, signal.SIGCONT):
            try:
                os.kill(started.program, number)
            except ProcessLookupError:
                break
            time.sleep(chance.random() * 0.02)
    assert started.caller.wait(PATIENCE_S) == 0, (tmp_path / "said").read_text() + (tmp_path / "stderr").read_text()
    assert (tmp_path / "stdout").read_text() == "ok\n"


@pytest.mark.parametrize("guest", ["demand", "threads", "fork_child", "remap", "discard"])
@pytest.mark.parametrize("name", ["page-coloring", "modulo"])
def test_a_limit_on_address_space_costs_colours_not_contents(
    name: str, guest: str, workshop: Workshop, run_under: Runner
) -> None:
    """``ulimit -v``: hardly any room for a pool. The guest is told no colours: it checks contents only."""
    policy = possible(BY_NAME[name])
    limit = 260_000 if guest == "threads" else 130_000
    run = run_under(policy.toml, ["bash", "-c", f"ulimit -v {limit}; exec {workshop.build(f'frames/{guest}')}"])
    assert run.succeeded().stdout == "ok\n", run.story()


@pytest.mark.parametrize("name", ["page-coloring", "bin-hopping"])
def test_python_under_a_limit_raises_memory_error_and_goes_on(name: str, run_under: Runner) -> None:
    program = """
kept = []
try:
    while True: kept.append(bytearray(1 << 20))
except MemoryError:
    count = len(kept)
    kept.clear()
assert 50 < count < 400, count
kept = [bytearray(b"x") * (1 << 20) for _ in range(count // 2)]
assert all(block == b"x" * (1 << 20) for block in kept)
print("ok")
"""
    command = ["bash", "-c", f'ulimit -v 400000; exec {need("python3")} -c "$0"', program]
    run = run_under(possible(BY_NAME[name]).toml, command).succeeded()
    assert run.stdout == "ok\n", run.story()


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT, signal.SIGKILL], ids=lambda number: number.name)
def test_death_by_signal_is_reported_as_that_signal(number: int, workshop: Workshop, run_under: Runner) -> None:
    how = {signal.SIGSEGV: "segv", signal.SIGABRT: "abort", signal.SIGKILL: "kill"}[signal.Signals(number)]
    run = run_under(possible(BY_NAME["page-coloring"]).toml, [str(workshop.build("die")), how])
    outcome = run.the_record.outcome
    assert (outcome.status, outcome.exit_code, outcome.signal) == ("signalled", None, number), run.story()


def test_a_limit_on_locked_memory_is_no_limit_on_pinned_programs(workshop: Workshop, run_under: Runner) -> None:
    """Regression: mremap of memory that the policy had locked failed with EAGAIN (stress-ng --mremap)."""
    policy = possible(BY_NAME["pinned"])
    place = workshop.build("frames/grows")
    run = run_under(policy.toml, [str(place)], user="nobody").succeeded()
    assert (run.stdout, run.stderr) == ("ok\n", ""), run.story()
    frames = run.the_record.frames
    assert frames is not None
    [strategy] = frames.strategies
    # No more than the limit can be pinned; placed all the same, but for locked pages at the limit's edge, which are the
    # kernel's, told and counted: no page of the pool can be locked for them any more. How many depends on how much of
    # the limit the pool has at that moment.
    assert strategy.placed_pages > 1000, run.story()
    assert strategy.fallback_pages == 0, run.story()
    assert strategy.placed_pages + strategy.zero_pages == strategy.requested_pages, run.story()
    assert any("pinning is limited" in warning.message for warning in run.the_record.warnings), run.story()
