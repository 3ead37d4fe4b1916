"""A study on a cluster of real workers: never two runs on a host, blocks whole, nothing lost whatever dies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from harness.dask import Cluster, cluster
from pagelab.analysis import analyse, load
from pagelab.distribute import cluster as dask_cluster
from pagelab.distribute import hosts
from pagelab.errors import BadInputError, MachineError
from pagelab.study import cluster as module
from pagelab.study import on_host
from pagelab.study import store as store_module
from pagelab.study.control import resume_study, run_study
from pagelab.study.errors import StudyError, StudyInterruptedError
from pagelab.study.job import run_steps
from pagelab.study.launching import local_tools
from pagelab.study.progress import Silent
from pagelab.study.store import Store

SPEC = """\
name = "shared"
executions = 4
warmups = 0
setup = "mkdir session-$PAGELAB_HOST"
teardown = "rmdir session-$PAGELAB_HOST"

[[workload]]
name = "w"
shell = 'echo begin >> log-$PAGELAB_HOST; sleep 0.15; echo end >> log-$PAGELAB_HOST'
setup = "mkdir run-$PAGELAB_HOST"
teardown = "rmdir run-$PAGELAB_HOST"

[[policy]]
name = "kernel"

[[policy]]
name = "4K"
pages = "4K"
"""


class Watch(Silent):
    """Calls ``begun`` with the number of runs begun, ``done`` with that of runs done, ``told`` with each note."""

    def __init__(
        self,
        begun: Callable[[int], None] = lambda _: None,
        done: Callable[[int], None] = lambda _: None,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.notes: list[str] = []
        self._begun, self._done, self._told = begun, done, told
        self._counts = [0, 0]

    def running(self, condition: str) -> None:
        self._counts[0] += 1
        self._begun(self._counts[0])

    def finished(self, condition: str, status: str, message: str | None, left_s: float | None) -> None:
        self._counts[1] += 1
        self._done(self._counts[1])

    def note(self, text: str) -> None:
        self.notes.append(text)
        self._told(text)


@pytest.fixture
def dask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("dask")) as running:
        yield running


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    (tmp_path / "s.toml").write_text(SPEC)
    return tmp_path / "s.toml"


def check(out: Path, *, hosts: int, repeated: int = 0, lines: bool = True) -> pl.DataFrame:
    """All runs are there once, each block is of one platform, and on no host two programs ran at once."""
    with Store.open(out, write=False) as store:
        runs, machines = store.runs(), store.rows("SELECT name, host, machine FROM platform")
        records = dict(store.rows("SELECT position, json_extract(record_json, '$.provenance.host') FROM run"))
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert store.rows("SELECT count(*) FROM attempt WHERE outcome IS NULL") == [(0,)]
        steps = store.rows("SELECT command, message FROM step WHERE message IS NOT NULL")
        interrupted = [w for w in store.study_warnings() if w.kind == "run-interrupted"]
    assert steps == [], "a set-up that finds the directory of another run has met it"
    assert runs["position"].to_list() == list(range(8))
    assert runs["status"].to_list() == ["ok"] * 8
    assert None not in records.values(), "each record says where it was made"
    assert len(machines) == hosts
    assert runs.group_by("block").agg(pl.col("platform").n_unique())["platform"].to_list() == [1] * 4
    assert runs["platform"].n_unique() == hosts
    assert len(interrupted) == repeated
    if lines:
        for log in out.parent.glob("log-*"):
            words = log.read_text().split()
            assert words == ["begin", "end"] * (len(words) // 2), log.read_text()
    assert not [*out.parent.glob("run-*"), *out.parent.glob("session-*")]
    return runs


def overlaps(runs: pl.DataFrame) -> int:
    """Pairs of runs of different hosts that ran at the same time."""
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for platform, began, lasted in runs.select("platform", "started_at", "duration_s").iter_rows():
        start = datetime.fromisoformat(began).timestamp()
        spans[platform].append((start, start + lasted))
    first, second = spans.values()
    return sum(a < d and c < b for a, b in first for c, d in second)


def test_two_workers_of_one_host_take_turns(dask: Cluster, spec: Path) -> None:
    for _ in range(2):
        dask.worker("only", measures=True)
    done = run_study(spec, spec.parent / "out", local_tools(), cluster=dask.address)
    assert (done.runs, done.failed) == (8, 0)
    check(spec.parent / "out", hosts=1)


@pytest.mark.by_turns(4)
def test_two_hosts_share_the_blocks_and_run_at_the_same_time(dask: Cluster, spec: Path) -> None:
    dask.worker("a", measures=True)
    dask.worker("b", measures=True)
    spec.write_text(SPEC.replace("sleep 0.15", "sleep 0.6"))
    run_study(spec, spec.parent / "out", local_tools(), cluster=dask.address)
    runs = check(spec.parent / "out", hosts=2)
    assert overlaps(runs) >= 2
    with Store.open(spec.parent / "out", write=False) as store:
        caveats = analyse(load(store)).caveats
    assert any(one.startswith("2 platforms shared the blocks (a (") for one in caveats), caveats


@pytest.mark.by_turns(4)
def test_the_run_of_a_killed_worker_is_repeated_on_its_platform_only(dask: Cluster, spec: Path) -> None:
    workers = {"a": dask.worker("a", measures=True)}
    spec.write_text(SPEC.replace("sleep 0.15", "sleep 0.6"))

    def begun(count: int) -> None:
        if count == 2:
            threading.Timer(0.3, workers["a"].kill).start()

    def told(note: str) -> None:
        if "died" in note:
            workers["b"] = dask.worker("b", measures=True)
        if "wait for a worker on the same platform" in note:
            assert note.startswith("blocks that a (")
            workers["again"] = dask.worker("a", measures=True)

    watch = Watch(begun=begun, told=told)
    run_study(spec, spec.parent / "out", local_tools(), progress=watch, cluster=dask.address)
    assert workers["a"].wait() == -signal.SIGKILL
    assert "again" in workers, "what was left of the block of a waited for a"
    runs = check(spec.parent / "out", hosts=2, repeated=1, lines=False)
    assert runs["attempts"].to_list().count(2) == 1
    again = runs.filter(pl.col("attempts") == 2)["platform"].item()
    assert again.startswith("a (")
    # The killed worker's program was ended before the run was made again: it never came to its end.
    assert (spec.parent / "log-a").read_text().split().count("begin") == (
        spec.parent / "log-a"
    ).read_text().split().count("end") + 1


@pytest.mark.by_turns(4)
def test_a_lost_scheduler_costs_the_runs_in_progress_and_resume_goes_on(
    dask: Cluster, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_S", 2.0)
    # The worker tears its run down itself if it comes to that; the next session cannot know, and does so again.
    spec.write_text(SPEC.replace("rmdir run-", "rm -rf run-"))
    dask.worker("a", measures=True)
    out = tmp_path / "out"
    watch = Watch(done=lambda count: dask.scheduler.kill() if count == 3 else None)
    with pytest.raises(MachineError) as lost:
        run_study(spec, out, local_tools(), progress=watch, cluster=dask.address)
    assert f"lost the Dask scheduler at {dask.address}" in str(lost.value)
    assert str(lost.value).endswith(
        f"runs are kept; continue with: pagelab study resume {out} --cluster {dask.address}"
    )
    with pytest.raises(StudyError, match=r"runs on a cluster.*resume \S+ --cluster tcp:"):
        resume_study(out, local_tools())
    with cluster(tmp_path_factory.mktemp("other")) as other:
        other.worker("a", measures=True)
        done = resume_study(out, local_tools(), cluster=other.address)
    assert (done.runs, done.failed) == (8, 0)
    check(out, hosts=1, repeated=1, lines=False)


@pytest.mark.by_turns(4)
def test_a_killed_session_is_cleaned_up_on_the_host_where_it_ran(dask: Cluster, spec: Path, tmp_path: Path) -> None:
    dask.worker("a", measures=True)
    out = tmp_path / "out"
    script = (
        "import os, sys, pathlib; from pagelab.study.control import run_study; "
        "from pagelab.study.launching import local_tools; from pagelab.study.progress import Silent\n"
        "class Kill(Silent):\n"
        "    count = 0\n"
        "    def finished(self, *_):\n"
        "        self.count += 1\n"
        "        if self.count == 3: os.kill(os.getpid(), 9)\n"
        "spec, out = map(pathlib.Path, sys.argv[1:3])\n"
        "run_study(spec, out, local_tools(), progress=Kill(), cluster=sys.argv[3])"
    )
    killed = subprocess.run([sys.executable, "-c", script, spec, out, dask.address], check=False)
    assert killed.returncode == -signal.SIGKILL
    done = resume_study(out, local_tools(), cluster=dask.address)
    assert (done.runs, done.failed) == (8, 0)
    with Store.open(out, write=False) as store:
        assert [row[0] for row in store.rows("SELECT reason FROM session ORDER BY id")] == ["killed", "done"]
        assert store.finished() == set(range(8))
    assert not [*tmp_path.glob("run-*"), *tmp_path.glob("session-*")]


@pytest.mark.by_turns(4)
def test_an_interrupt_ends_and_tears_down_what_runs(dask: Cluster, spec: Path, tmp_path: Path) -> None:
    dask.worker("a", measures=True)
    spec.write_text(SPEC.replace("sleep 0.15", "sleep 1"))
    out = tmp_path / "out"

    def begun(count: int) -> None:
        if count == 2:
            threading.Timer(0.4, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()

    with pytest.raises(StudyInterruptedError, match=rf"stopped by SIGTERM; 1 run is kept; .* --cluster {dask.address}"):
        run_study(spec, out, local_tools(), progress=Watch(begun=begun), cluster=dask.address)
    assert not [*tmp_path.glob("run-*"), *tmp_path.glob("session-*")]
    assert (tmp_path / "log-a").read_text().split() == ["begin", "end", "begin"]
    assert resume_study(out, local_tools(), cluster=dask.address).failed == 0
    check(out, hosts=1, repeated=1, lines=False)


class OneWorker:
    """A cluster of one worker, this process, which may ``die`` in the first run, after its set-up. Then Ctrl-C."""

    address = "tcp://127.0.0.1:9"

    def __init__(self, *, dies: bool) -> None:
        self._dies = dies
        self._present = {"tcp://127.0.0.1:10"}
        self._ended: list[hosts.Ended] = []
        self._submitted = self._looks = 0

    @contextmanager
    def connected(self) -> Iterator[OneWorker]:
        yield self

    def workers(self) -> set[str]:
        return set(self._present)

    def ask(self, function: Callable[[], object], workers: set[str]) -> dict[str, object]:
        return {worker: function() for worker in workers}

    def submit(self, work: Callable[[on_host.Task], object], task: on_host.Task, worker: str) -> str:
        self._submitted += 1
        name = str(self._submitted)
        if self._dies and isinstance(task, on_host.Assignment):
            run_steps("setup", task.job.condition.setup, 60.0, [])
            self._present.clear()
        else:
            self._ended.append(hosts.Ended(name, work(task)))
        return name

    def next(self, _timeout_s: float) -> hosts.Ended | None:
        self._looks += not self._present
        if self._looks > 1:  # the death has been seen
            raise KeyboardInterrupt
        return self._ended.pop(0) if self._ended else None

    def forget(self, name: str) -> None: ...


def as_left_before(store: Store) -> None:
    """What is owed, as earlier versions left it: conditions in the place of their steps."""
    ((owed,),) = store.rows("SELECT value FROM meta WHERE key = 'cluster_owed_steps'")
    running = [row[0] for row in store.rows("SELECT condition FROM attempt JOIN schedule USING (position)")]
    store.put_meta("cluster_owed", json.dumps(dict.fromkeys(json.loads(owed), running)))
    store._db.execute("DELETE FROM meta WHERE key = 'cluster_owed_steps'")


@pytest.mark.parametrize("version", ["this", "before"])
def test_what_a_dead_worker_owes_is_left_to_the_next_session(
    version: str, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: it was forgotten when the session ended before another worker came; the repeated run's set-up then
    met what the first had left, and the run was recorded as not started."""
    monkeypatch.setenv("PAGELAB_HOST", "a")
    spec.write_text(SPEC.replace("executions = 4", "executions = 1").replace("sleep 0.15", "true"))
    out = tmp_path / "out"
    monkeypatch.setattr(module, "HostCluster", lambda *_: OneWorker(dies=True))
    with pytest.raises(StudyInterruptedError, match="0 runs are kept"):
        run_study(spec, out, local_tools(), cluster=OneWorker.address)
    assert {*tmp_path.glob("*-a")} == {tmp_path / "run-a", tmp_path / "session-a"}
    if version == "before":
        with Store.open(out) as store:
            as_left_before(store)
    monkeypatch.setattr(module, "HostCluster", lambda *_: OneWorker(dies=False))
    done = resume_study(out, local_tools(), cluster=OneWorker.address)
    assert (done.runs, done.failed) == (2, 0)
    assert [*tmp_path.glob("*-a")] == [tmp_path / "log-a"]
    with Store.open(out, write=False) as store:
        assert store.rows("SELECT command, message FROM step WHERE message IS NOT NULL") == []
        assert set(json.loads(store.meta().get("cluster_owed", "{}"))) == set()


@pytest.mark.by_turns(4)
def test_a_full_disk_loses_nothing_that_was_kept(
    dask: Cluster, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite refuses to let the file grow, as it does where the medium is full."""
    dask.worker("a", measures=True)
    out, plain = tmp_path / "out", store_module.connect

    def full(path: Path) -> sqlite3.Connection:
        connection = plain(path)
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        if pages > 1:
            connection.execute(f"PRAGMA max_page_count = {pages + 12}")
        return connection

    monkeypatch.setattr(store_module, "connect", full)
    with pytest.raises(MachineError, match=r"No space left on device .* kept; make room"):
        run_study(spec, out, local_tools(), cluster=dask.address)
    monkeypatch.undo()
    with Store.open(out, write=False) as store:
        kept = store.rows("SELECT position, record_json FROM run ORDER BY position")
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
    assert len(kept) < 8
    assert resume_study(out, local_tools(), cluster=dask.address).failed == 0
    with Store.open(out, write=False) as store:
        assert store.rows("SELECT position, record_json FROM run ORDER BY position")[: len(kept)] == kept
        assert store.finished() == set(range(8))


@pytest.mark.by_turns(4)
def test_workers_that_do_not_measure_are_left_alone_and_waiting_ends(
    dask: Cluster, spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_PATIENCE_S", 8.0)
    dask.worker("a")
    watch = Watch()
    with pytest.raises(MachineError, match=r"no worker to measure on; start one with: dask worker .*none came"):
        run_study(spec, tmp_path / "out", local_tools(), progress=watch, cluster=dask.address)
    assert any("is left alone: it was not started for measurements" in note for note in watch.notes)


def test_a_host_that_cannot_run_the_study_is_left_alone_by_name(dask: Cluster, spec: Path, tmp_path: Path) -> None:
    dask.worker("a", measures=True)
    spec.write_text(SPEC.replace('name = "w"\n', 'name = "w"\ncwd = "/nowhere"\n'))
    with pytest.raises(StudyError, match=r"no host can run the study; a \(.*there is no directory /nowhere"):
        run_study(spec, tmp_path / "out", local_tools(), cluster=dask.address)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("executions = 4", "minutes = 1"), "--cluster and minutes exclude each other"),
        (('name = "shared"', 'name = "shared"\ntest = "rank-sum"'), "compares runs of different hosts"),
    ],
)
def test_studies_that_hosts_cannot_share_are_refused(spec: Path, change: tuple[str, str], told: str) -> None:
    spec.write_text(SPEC.replace(*change))
    with pytest.raises(BadInputError, match=told):
        run_study(spec, spec.parent / "out", local_tools(), cluster="tcp://127.0.0.1:9")
    assert not (spec.parent / "out").exists()


@pytest.mark.by_turns(4)
def test_workers_of_its_own_by_the_command_line(spec: Path) -> None:
    """And a study of one machine does not move to a cluster."""
    command = [sys.executable, "-m", "pagelab", "study"]
    out = spec.parent / "out"
    environment = {**os.environ, "PAGELAB_HOST": "here"}
    done = subprocess.run(
        [*command, "run", spec, "--into", out, "--cluster", "2"],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    check(out, hosts=1)
    bad = subprocess.run([*command, "run", spec, "--cluster", "0"], capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr.count("neither a scheduler's address nor a number")) == (2, 1)
    with Store.open(out) as store:
        store._db.execute("DELETE FROM meta WHERE key = 'cluster'")
    with pytest.raises(StudyError, match="begun on one machine"):
        resume_study(out, local_tools(), cluster="2")
