"""Random trouble: seeded allocator torture, processes killed at random moments, nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.guests import Workshop
from harness.launching import Run, Runner
from harness.policies import BY_NAME, THP, Policy
from harness.processes import processes_named

TOUGH = ["all-2M", "mosaic", "prefault", "willneed"]


def torture(policy: Policy, seed: int, operations: int, threads: int, workshop: Workshop, run_under: Runner) -> None:
    command = [str(workshop.build("torture")), str(seed), str(operations), str(threads)]
    run = run_under(policy.toml, command, env=policy.environment()).succeeded()
    assert run.stdout == "ok\n", run.story()


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("seed", range(10, 14))
@pytest.mark.parametrize("name", TOUGH)
def test_torture(name: str, seed: int, threads: int, workshop: Workshop, run_under: Runner) -> None:
    torture(BY_NAME[name], seed, 900 // threads, threads, workshop, run_under)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 130))
def test_torture_long(policy: Policy, seed: int, workshop: Workshop, run_under: Runner) -> None:
    torture(policy, seed, 6000, 1, workshop, run_under)
    torture(policy, seed, 3000, 4, workshop, run_under)
    command = [str(workshop.build("heap_torture")), str(seed), "1500"]
    run = run_under(policy.toml, command, env=policy.environment()).succeeded()
    assert run.stdout == "ok\n", run.story()


def settings(policy: Policy) -> dict[Path, str]:
    """The machine-wide switches that a run under this policy may touch."""
    paths: list[Path] = []
    if policy.name == "demand":
        paths = [*Path("/sys/block").glob("*/queue/read_ahead_kb")]
    if policy.name == "mthp-64K":
        paths = [THP / "enabled", *THP.glob("hugepages-*/enabled")]
    return {path: path.read_text() for path in paths}


def kill_at_random(policy: Policy, cycles: int, workshop: Workshop, run_under: Runner) -> None:
    """Starts a long torture, kills it at a random moment, and expects a record that says so, every time."""
    chance, marker = random.Random(1), f"31415{os.getpid()}"
    before = settings(policy)
    command = [str(workshop.build("torture")), "1", marker, "3"]

    def collect(runs: list[Run]) -> None:
        runs.append(run_under(policy.toml, command, env=policy.environment()))

    for cycle in range(cycles):
        runs: list[Run] = []
        thread = threading.Thread(target=collect, args=(runs,))
        thread.start()
        deadline = time.monotonic() + 60
        while not (victims := processes_named(marker)) and thread.is_alive():
            assert time.monotonic() < deadline
            time.sleep(0.001)
        time.sleep(chance.random() * 0.05)
        for pid in victims:
            os.kill(pid, signal.SIGKILL)
        thread.join(60)
        assert not thread.is_alive(), f"cycle {cycle}: the launcher hangs"
        outcome = runs[0].the_record.outcome
        assert (outcome.status, outcome.signal) == ("signalled", signal.SIGKILL), runs[0].story()
        assert not processes_named(marker), f"cycle {cycle}: a process is left"
    assert settings(policy) == before


def able(name: str) -> Policy:
    """The policy, or a skip that says what it needs."""
    missing = BY_NAME[name].missing()
    if missing:
        pytest.skip(missing)
    return BY_NAME[name]


@pytest.mark.parametrize("name", ["all-2M", "mosaic", "demand", "mthp-64K"])
def test_killed_at_random_moments(name: str, workshop: Workshop, run_under: Runner) -> None:
    kill_at_random(able(name), 8, workshop, run_under)


@pytest.mark.slow
def test_killed_at_random_moments_long(policy: Policy, workshop: Workshop, run_under: Runner) -> None:
    kill_at_random(policy, 200, workshop, run_under)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL], ids=lambda number: number.name)
@pytest.mark.parametrize("name", ["demand", "mthp-64K"])
def test_ended_launcher_takes_the_tree_with_it(
    name: str, number: signal.Signals, workshop: Workshop, run_under: Runner
) -> None:
    """Even after kill -9 of the launcher nothing is left: no process, and no switch that is not put back."""
    policy, marker = able(name), f"27182{os.getpid()}{int(number)}"
    before = settings(policy)
    command = [str(workshop.build("torture")), "1", marker, "2"]
    thread = threading.Thread(target=lambda: run_under(policy.toml, command))
    thread.start()
    until(lambda: bool(processes_named(marker)))
    status = Path(f"/proc/{processes_named(marker)[0]}/status").read_text()
    parent = next(line.split()[1] for line in status.splitlines() if line.startswith("PPid:"))
    os.kill(int(parent), number)
    thread.join(30)
    assert not thread.is_alive()
    until(lambda: not processes_named(marker))
    until(lambda: settings(policy) == before)


def until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.01)
