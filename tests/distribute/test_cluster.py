"""A Dask cluster of real processes: workers are killed, and every result arrives."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from harness import working
from harness.dask import Cluster, cluster
from pagelab import trace
from pagelab.distribute import cluster as module
from pagelab.distribute import hosts
from pagelab.distribute.cluster import DaskCluster
from pagelab.distribute.hosts import Connection
from pagelab.distribute.model import Lost
from pagelab.errors import MachineError
from pagelab.simulate.sweeping.run import sweep

SWEEP = """
traces = ["*.trace"]
seeds = 6
seeds_per_task = 1
[[cache]]
hierarchy = "small.toml"
frames = ["kernel", "random"]
memory = "64M"
"""
SMALL = """
name = "small"
[cache]
level = [{ name = "L1", size = "4K", ways = 4 }, { name = "L2", size = "64K", ways = 2 }]
"""


@pytest.fixture
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask"), allowed_failures=1) as running:
        yield running


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    for name, seed in (("one", 1), ("two", 2)):
        addresses = np.random.default_rng(seed).integers(0x7F00_0000_0000, 0x7F00_0010_0000, 200_000, dtype=np.uint64)
        trace.write(tmp_path / f"{name}.trace", [addresses])
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "sweep.toml").write_text(SWEEP)
    return tmp_path / "sweep.toml"


@pytest.mark.by_turns(4)
def test_a_worker_killed_in_the_middle_of_a_sweep_costs_nothing(dask: Cluster, spec: Path) -> None:
    workers = [dask.worker(), dask.worker()]
    out, counts = spec.parent / "out", []

    def progress(done: int, total: int, failed: int) -> None:
        counts.append((done, total, failed))
        if done == 6:
            workers[0].kill()

    done = sweep(spec, out, cluster=dask.address, progress=progress)
    assert counts == [(number, 24, 0) for number in range(25)]
    assert workers[0].wait() == -9
    assert workers[1].poll() is None
    assert done.failed == ()
    order, drop = ["task", "level"], ["host", "seconds"]
    here = sweep(spec, spec.parent / "local", processes=0).frame()
    assert done.frame().drop(drop).sort(order).equals(here.drop(drop).sort(order))
    # Nothing is left to do, so nothing is asked of the cluster.
    assert sweep(spec, out, cluster="tcp://127.0.0.1:9").done_before == 24


def test_results_that_die_with_their_workers_are_computed_again(dask: Cluster) -> None:
    """All jobs are done and none but the first is fetched when every worker dies: the others have no result then."""
    executor = DaskCluster(dask.address)
    workers = [dask.worker(), dask.worker()]
    with executor._client(module.library()) as client:
        client.wait_for_workers(2, timeout=60)
        outcomes = executor.execute(working.double, range(4))
        done = [next(outcomes)]
        until(lambda: sum(len(keys) for keys in client.has_what().values()) == 4)
        for worker in workers:
            worker.kill()
        until(lambda: not client.nthreads())
        time.sleep(0.5)  # the same scheduler tells the other client
        dask.worker()
        done += outcomes
    assert sorted(done) == [(number, 2 * number) for number in range(4)]


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.by_turns(4)
def test_a_job_that_kills_workers_is_done_again_or_lost_by_name(dask: Cluster, tmp_path: Path) -> None:
    """The scheduler allows one death, so that the second loses the job."""
    said: list[str] = []
    executor = DaskCluster(dask.address, say=said.append)
    for _ in range(3):
        dask.worker()
    once = [(number, str(tmp_path / str(number)) if number == 2 else None) for number in range(6)]
    assert dict(executor.execute(working.die_where_marked, once)) == {job: job[0] for job in once}
    assert (tmp_path / "2").exists()
    always = (9, "always")
    ((job, lost),) = executor.execute(working.die_where_marked, [always])
    assert job == always
    assert isinstance(lost, Lost)
    assert lost.message.startswith("each of 2 workers that had it died, the last: tcp://127.0.0.1:")
    dask.worker()
    assert list(executor.execute(working.refuse, [4])) == [(4, Lost("ValueError: no 4"))]
    assert sorted(executor.execute(working.double, range(50))) == [(number, 2 * number) for number in range(50)]


def test_a_scheduler_that_goes_away_ends_the_sweep_and_what_is_finished_stays(
    dask: Cluster, spec: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CONNECT_S", 2.0)
    dask.worker()
    out = spec.parent / "out"

    def progress(done: int, _total: int, _failed: int) -> None:
        if done == 3:
            dask.scheduler.kill()

    with pytest.raises(MachineError, match=f"lost the Dask scheduler at {dask.address}"):
        sweep(spec, out, cluster=dask.address, progress=progress)
    assert 3 <= len(list(out.glob("*.parquet"))) < 24


def test_a_host_that_does_not_see_a_trace_is_named(dask: Cluster, spec: Path) -> None:
    dask.worker()

    def progress(done: int, _total: int, _failed: int) -> None:
        if done == 2:
            (spec.parent / "two.trace").unlink()

    with pytest.raises(MachineError, match=r"host \S+ does not fit: cannot read the trace \S+two.trace: No such file"):
        sweep(spec, spec.parent / "out", cluster=dask.address, progress=progress)


def test_workers_with_another_pagelab_are_refused(dask: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with DaskCluster(dask.address)._client(module.library()) as client:
        dask.worker()
        client.wait_for_workers(1, timeout=60)
    monkeypatch.setattr(module, "_mine", lambda: "9.9")
    with pytest.raises(MachineError, match=r"worker tcp://127.0.0.1:\d+ has pagelab \S+, and this is pagelab 9.9"):
        list(DaskCluster(dask.address).execute(working.double, [1]))


def test_where_nobody_listens_the_message_has_the_next_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_CONNECT_S", 0.2)
    for address in ("tcp://127.0.0.1:9", "nonsense://127.0.0.1:9"):
        with pytest.raises(MachineError, match="start one with: dask scheduler"):
            list(DaskCluster(address).execute(working.double, [1]))


def test_without_dask_local_sweeps_work_and_clusters_say_what_to_install(spec: Path) -> None:
    script = (
        "import sys; sys.modules['distributed'] = sys.modules['dask'] = None; from pagelab.cli import main; "
        "sys.argv[0] = 'pagelab'; main()"
    )
    command = [sys.executable, "-c", script, "simulate", "sweep", str(spec), "--out", str(spec.parent / "out")]
    remote = [*command, "--cluster", "tcp://127.0.0.1:9"]
    refused = subprocess.run(remote, capture_output=True, text=True, check=False)
    assert refused.returncode == 3
    assert refused.stderr.endswith("run: pip install 'pagelab[cluster]'\n")
    local = subprocess.run([*command, "--processes", "1"], capture_output=True, text=True, check=False)
    assert local.returncode == 0, local.stderr


def test_a_job_that_stays_lost_is_looked_at_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def later(pause_s: float, put: Callable[[str], None], arguments: tuple[str]) -> Any:
        pauses.append(pause_s)
        return SimpleNamespace(start=lambda: put(*arguments))

    monkeypatch.setattr(hosts.threading, "Timer", later)
    connection = Connection(SimpleNamespace(status="running"), "tcp://127.0.0.1:9", lambda _: None)
    for name in ("first", "second"):
        connection._running[name] = SimpleNamespace(status="pending", cancel=lambda: None)
        connection._ended.put(name)
        assert [connection.next(0.0) for _ in range(7)] == [None] * 7
        assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
        connection.forget(name)
        assert connection.next(0.0) is None
        pauses.clear()


def test_a_job_whose_worker_died_before_the_look_is_left_to_its_caller() -> None:
    """Regression: the death was told as that of the scheduler, which ran, and ended the session."""
    client = SimpleNamespace(status="running", scheduler_info=lambda **_: {"workers": {}})
    connection = Connection(client, "tcp://127.0.0.1:9", lambda _: None)
    connection._workers, connection._asked = {"dead"}, time.monotonic()
    for status in ("lost", "pending"):
        connection._running[status] = SimpleNamespace(status=status, cancel=lambda: None)
        connection._ended.put(status)
        assert connection.next(0.0) is None
        assert connection.workers() == set(), "asked anew at once"
        connection.forget(status)
        assert connection.next(0.0) is None
    connection._running["gone"] = SimpleNamespace(status="cancelled")
    connection._ended.put("gone")
    with pytest.raises(MachineError, match=r"lost the Dask scheduler at tcp:.+: a job is cancelled"):
        connection.next(0.0)
