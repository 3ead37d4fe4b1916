"""Sweeps: the rows of the single simulations, all of them, once, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import pagelab.simulate
from harness.processes import arguments_of, children_of
from harness.sweeping import ALL, HISTORY, cli, references, written
from pagelab import trace
from pagelab.errors import BadInputError, PagelabError
from pagelab.simulate.placements import placement_of_pages
from pagelab.simulate.sweeping.operations import Task, Unfit, perform
from pagelab.simulate.sweeping.run import Sweep, planned, sweep

HOW = ("host", "seconds")
"""Columns that differ from one time to the next."""


def comparable(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.drop(HOW).sort("task", "seed", "level", "colours", "memory_pages")


def parts(out: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in out.glob("*.parquet")}


def run(spec: Path, out: Path, processes: int = 0, **options: Any) -> Sweep:
    """In this process where nothing else is said: starting others takes most of the time."""
    return sweep(spec, out, processes=processes, **options)


def same(found: pl.DataFrame, expected: pl.DataFrame, by: list[str]) -> None:
    """The columns of a single simulation, wherever the sweep has them."""
    assert found.select(expected.columns).sort(by).equals(expected.sort(by))


def test_rows_are_those_of_the_single_simulations(here: Path) -> None:
    done = run(written(here), here / "out", processes=2)
    assert (len(done.plan.tasks), done.done_before, done.failed) == (2 * 9, 0, ())
    frame = pl.scan_parquet(here / "out" / "*.parquet").collect()
    assert comparable(frame).equals(comparable(done.frame()))
    for name in ("one", "two"):
        path, own = here / f"{name}.trace", frame.filter(trace=name)
        faults = pagelab.simulate.paging(path, [1, 2], memory=[4, 16])
        same(own.filter(simulator="paging", configuration="lru"), faults, ["colours", "memory_pages"])
        for seed in (0, 1):
            drawn = pagelab.simulate.replacement(path, ["random"], [4, 16], [1, 2], seed=seed)
            same(own.filter(configuration="random", seed=seed), drawn, ["colours", "memory_pages"])
        runs = pagelab.simulate.cache(path, here / "small.toml", ["kernel", "random"], seeds=2, history=HISTORY)
        caches = own.filter(simulator="cache")
        by = ["placement", "seed", "level"]
        same(caches.filter(pl.col("level").is_not_null()), runs.levels, by)
        executions = caches.filter(pl.col("level").is_null())
        same(executions, runs.executions.drop("misses.L1", "misses.L2"), by[:2])
        walked = pagelab.simulate.tlb(path, here / "small.toml", [placement_of_pages(size) for size in ("4K", "2M")])
        tlbs = own.filter(simulator="tlb")
        assert tlbs["seed"].to_list() == [None, None]
        same(tlbs, walked.executions.drop("seed"), ["placement"])
    assert set(frame["trace_sha256"]) == {file.sha256 for file in done.plan.traces}


def test_sizes_for_which_a_sample_has_no_estimate_are_rows_without_faults(here: Path) -> None:
    """Regression: they were missing, so that means over seeds were those of the samples that had an estimate."""
    trace.write(here / "loop.trace", [np.arange(30_000, dtype=np.uint64) % np.uint64(1000)], page_bytes=4096)
    text = "traces = ['loop.trace']\n[[paging]]\nsample = 0.1\ncolors = 64\nmemory = '1M'\nseeds = 3\n"
    (here / "few.toml").write_text(text)
    found = sweep(here / "few.toml", here / "few", processes=0).frame()
    assert found.select("seed", "colours", "memory_pages", "faults").rows() == [(n, 64, 256, None) for n in range(3)]


def test_random_replacement_of_tlbs_has_a_row_for_each_seed(here: Path) -> None:
    """Regression: one seed was simulated, and its row said that nothing was drawn."""
    text = (here / "small.toml").read_text().replace("entries = 8", "entries = 8, replacement = 'random'")
    (here / "drawing.toml").write_text(text)
    table = "traces = ['one.trace']\nseeds = 3\n[[tlb]]\nprocessor = 'drawing.toml'\npages = '4K'\n"
    found = run(written(here, table), here / "out").frame().sort("seed")
    real = pagelab.simulate.tlb(here / "one.trace", here / "drawing.toml", placement_of_pages("4K"), seeds=3).executions
    assert found["seed"].to_list() == [0, 1, 2]
    assert found["m"].to_list() == real["m"].to_list()
    assert len(set(real["m"])) > 1


def test_seeds_of_one_task_are_those_of_several(here: Path) -> None:
    cut = ALL[ALL.index("[[cache]]") : ALL.index("[[tlb]]")]
    apart = run(written(here, f'traces = ["one.trace"]\nseeds = 5\nseeds_per_task = 1\n{cut}'), here / "apart")
    spec = written(here, f'traces = ["one.trace"]\nseeds = 5\nseeds_per_task = 3\n{cut}')
    together = run(spec, here / "together")
    assert [task.seeds for task in together.plan.tasks] == 2 * [(0, 1, 2), (3, 4)]
    keys = ["configuration", "seed", "level"]
    first, second = (one.frame().drop("task", *HOW).sort(keys) for one in (apart, together))
    assert first.equals(second)


def test_called_again_it_does_what_is_missing(here: Path) -> None:
    spec, out = written(here), here / "out"
    first = run(spec, out).frame()
    before = parts(out)
    again = run(spec, out)
    assert again.done_before == 18
    assert parts(out) == before

    gone, torn, *_ = sorted(out.glob("*.parquet"))
    gone.unlink()
    torn.write_bytes(torn.read_bytes()[:-9])
    assert len(planned(spec, out)[1]) == 2
    assert run(spec, out).done_before == 16
    assert comparable(run(spec, out).frame()).equals(comparable(first))
    assert {name for name, when in parts(out).items() if before[name] != when} == {gone.name, torn.name}


def test_a_changed_file_keeps_what_is_still_in_it(here: Path) -> None:
    out = here / "out"
    run(written(here), out)
    before = parts(out)
    longer = ALL.replace("seeds = 2", "seeds = 3").replace(
        '["kernel", "random"]', '["kernel", "random", "bin-hopping"]'
    )
    done = run(written(here, longer), out)
    assert done.done_before == 18
    assert len(done.plan.tasks) == 2 * 15
    assert before.items() <= parts(out).items()

    less = run(written(here, ALL.replace("seeds = 2", "seeds = [1]")), out)
    assert less.done_before == len(less.plan.tasks) == len(parts(out)) == 2 * 6
    assert set(less.frame()["seed"]) == {1, None}
    assert run(written(here, longer), out).done_before == 30


def test_traces_are_known_by_their_contents(here: Path) -> None:
    spec, out = written(here), here / "out"
    run(spec, out)
    os.utime(here / "one.trace", (1, 1))
    assert planned(spec, out)[1] == []
    trace.write(here / "two.trace", [references(3)], force=True)
    again = run(spec, out)
    assert again.done_before == 9
    assert again.frame()["trace_sha256"].n_unique() == 2


def test_traces_with_the_same_name_have_their_directories_before_it(here: Path) -> None:
    (here / "a").mkdir()
    (here / "one.trace").rename(here / "a" / "two.trace")
    made, _ = planned(written(here, ALL.replace("*.trace", "**/*.trace")), here / "out")
    assert sorted(file.name for file in made.traces) == ["a/two", f"{here.name}/two"]


def damage(path: Path) -> bytes:
    """Breaks a chunk, which only reading it tells; returns what was there."""
    whole = path.read_bytes()
    content = bytearray(whole)
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)
    return whole


@pytest.mark.by_turns(4)
def test_failures_are_listed_and_tried_again_and_the_rest_is_done(here: Path) -> None:
    spec, out = written(here), here / "out"
    whole = damage(here / "two.trace")
    said = cli(spec, "--out", out, "--processes", 0)
    assert said.returncode == 1, said.stderr
    assert "all: 9 of 18 tasks are done" in said.stdout
    assert "9 of 18 tasks failed:\n  two, paging lru: " in said.stderr
    assert "damaged" in said.stderr
    assert said.stderr.endswith(f"with: pagelab simulate sweep {spec} --out {out}\n")
    failed = [json.loads(path.read_text()) for path in (out / "_sweep" / "failed").iterdir()]
    assert {one["title"].split(",")[0] for one in failed} == {"two"}
    assert len(failed) == 9
    assert set(pl.read_parquet(out / "*.parquet")["trace"]) == {"one"}

    (here / "two.trace").write_bytes(whole)
    said = cli(spec, "--out", out, "--processes", 0, "--json")
    assert said.returncode == 0, said.stderr
    assert json.loads(said.stdout) | {"directory": ""} == {
        "name": "all",
        "directory": "",
        "tasks": 18,
        "done_before": 9,
        "failed": [],
    }
    assert list((out / "_sweep" / "failed").iterdir()) == []


def emptied(group: int) -> bool:
    """Waits until a process group has nobody left: multiprocessing's resource tracker ends a moment later."""
    for _ in range(1000):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


LONG = """
traces = ["*.trace"]
seeds = 30
seeds_per_task = 1
[[cache]]
hierarchy = "small.toml"
memory = "256M"
turnover = 4
"""


@pytest.mark.by_turns(4)
def test_interrupted_it_keeps_what_is_finished_and_leaves_no_process(here: Path) -> None:
    spec, out = written(here, LONG), here / "out"
    command = [sys.executable, "-m", "pagelab", "simulate", "sweep", spec, "--out", out, "--processes", "2"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as running:
        while len(parts(out)) < 3:
            assert running.poll() is None
            time.sleep(0.01)
        os.killpg(running.pid, signal.SIGINT)
        _, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert f"of 60 tasks are done and kept; go on with: pagelab simulate sweep {spec} --out {out}" in stderr
    assert emptied(running.pid)
    done = len(parts(out))
    assert 3 <= done < 60
    assert list((out / "_sweep").glob("*.part")) == []
    again = run(spec, out)
    assert again.done_before == done
    fresh = run(spec, here / "fresh")
    assert comparable(again.frame()).equals(comparable(fresh.frame()))


def test_a_worker_that_is_killed_costs_nothing(here: Path) -> None:
    spec, out = written(here, LONG.replace("seeds = 30", "seeds = 8")), here / "out"
    killed: list[int] = []

    def progress(done: int, _total: int, _failed: int) -> None:
        if done == 4:
            children = children_of(os.getpid())
            workers = [pid for pid in children if any(b"spawn_main" in word for word in arguments_of(pid))]
            killed.append(workers[-1])
            os.kill(workers[-1], signal.SIGKILL)

    done = run(spec, out, 2, progress=progress)
    assert len(killed) == 1
    assert done.failed == ()
    assert done.frame()["task"].n_unique() == 16


def test_one_sweep_at_a_time_writes_to_a_directory(here: Path) -> None:
    spec, out = written(here), here / "out"
    refused: list[str] = []

    def progress(done: int, _total: int, _failed: int) -> None:
        if done == 1:
            with pytest.raises(PagelabError, match=f"process {os.getpid()} on .* is running a sweep there") as caught:
                run(spec, out)
            refused.append(str(caught.value))

    assert run(spec, out, progress=progress).failed == ()
    assert len(refused) == 1


def test_directories_of_others_are_left_alone(here: Path) -> None:
    with pytest.raises(BadInputError, match="not the directory of a sweep"):
        run(written(here), here)
    with pytest.raises(BadInputError, match="a file; name a directory"):
        run(written(here), here / "small.toml")
    assert not (here / "_sweep").exists()


def test_workers_that_do_not_fit_say_so(here: Path) -> None:
    task = planned(written(here), here / "out")[0].tasks[0]
    other = perform(Task(task.digest, task.trace, task.configuration, task.seeds, "9.9"))
    assert isinstance(other, Unfit)
    assert "planned with 9.9" in other.message
    trace.write(here / "one.trace", [references(9)], force=True)
    changed = perform(task)
    assert isinstance(changed, Unfit)
    assert "is not the one that the sweep was planned with" in changed.message
    (here / "one.trace").unlink()
    missing = perform(task)
    assert isinstance(missing, Unfit)
    assert "No such file or directory (errno 2)" in missing.message


@pytest.mark.by_turns(4)
def test_executions_are_compared_by_the_statistics_of_real_runs(here: Path) -> None:
    cut = ALL[ALL.index("[[cache]]") : ALL.index("[[tlb]]")]
    spec = written(here, f'traces = ["one.trace"]\nseeds = 6\n{cut}')
    done = run(spec, here / "out")
    found = {one.placement: one for one in done.spread()}
    assert list(found) == ["one, small kernel memory=64M", "one, small random memory=64M"]
    cycles = done.frame().filter(pl.col("level").is_null(), placement="kernel")["cycles"]
    kernel = found["one, small kernel memory=64M"]
    assert (kernel.minimum, kernel.maximum) == (cycles.min(), cycles.max())
    assert kernel.mean.value == pytest.approx(cycles.mean())  # type: ignore[union-attr] # six executions: not refused
    said = cli(spec, "--out", here / "out", "--figure", here / "cycles")
    assert said.returncode == 0, said.stderr
    assert (here / "cycles.svg").stat().st_size > 1000
    assert "cycles of memory (each access waits for the one before)" in said.stdout
    assert "one, small random memory=64M" in said.stdout


def test_the_figure_shows_every_execution(here: Path) -> None:
    from pagelab.simulate.sweeping.run import cycles_figure

    done = run(written(here), here / "out")
    (values,) = cycles_figure(done.frame())["datasets"].values()
    assert len(values) == 2 * 2 * 2
    assert {value["condition"] for value in values} == {"kernel", "random"}
    with pytest.raises(BadInputError, match="no executions of caches"):
        cycles_figure(done.frame().filter(simulator="paging"))
