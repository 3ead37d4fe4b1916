"""``pagelab.simulate.cache`` and the command, on references with known answers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from pagelab.analysis import Analysis, analyse, load
from pagelab.errors import BadInputError
from pagelab.policy import PolicyError
from pagelab.simulate.cache_runs import cache
from pagelab.simulate.export import as_study
from pagelab.simulate.hardware import colours, presets
from pagelab.simulate.hardware import load as processor_named
from pagelab.simulate.placements import History, placement
from pagelab.simulate.references import STORE, pack
from pagelab.simulate.spread import spread
from pagelab.sizes import size_bytes
from pagelab.stats.nondeterminism import Refused
from pagelab.study.store import Store

START = 0x7F00_0000_0000
SMALL = {
    "cache": {"level": [{"name": "L1", "size": "4K", "ways": 4, "cycles": 4}, {"name": "L2", "size": "64K", "ways": 2}]}
}
"""L2: 512 sets, 8 page colours."""
TIMED = {"cache": {**SMALL["cache"], "memory_cycles": 200}}
MACHINE = History(memory_bytes=64 << 20)


def sweep(size: int, passes: int) -> np.ndarray:
    return np.tile(np.arange(START, START + size, 64, dtype=np.uint64), passes)


def test_an_array_that_fills_the_cache_stays_only_where_its_colours_are_even() -> None:
    """ALLOC's claim: 64 KiB just fit into the L2, if no colour has more than two of the sixteen pages."""
    strategies = ["kernel", "page-coloring", "bin-hopping", "random"]
    runs = cache(sweep(64 << 10, 20), SMALL, strategies, seeds=12, history=MACHINE)
    misses = {name: runs.executions.filter(placement=name)["misses.L2"].to_list() for name in strategies}
    assert misses["page-coloring"] == misses["bin-hopping"] == [1024] * 12
    assert max(misses["kernel"]) > min(misses["kernel"]) >= 1024
    assert max(misses["random"]) > min(misses["random"]) > 1024
    found = {one.placement: one for one in spread(runs.executions, ["misses.L2"])}
    assert found["page-coloring"].variation.value == 0  # type: ignore[union-attr] # not refused: twelve executions
    kernel = found["kernel"].variation
    assert not isinstance(kernel, Refused)
    assert kernel.interval.low > 0.01


def test_executions_are_decided_by_their_seeds_however_many_threads_share_them() -> None:
    one = cache(sweep(64 << 10, 3), SMALL, ["kernel", "random"], seeds=[3, 4, 9], history=MACHINE, threads=1)
    three = cache(sweep(64 << 10, 3), SMALL, ["kernel", "random"], seeds=[3, 4, 9], history=MACHINE, threads=3)
    assert one.executions.equals(three.executions)
    assert one.levels.equals(three.levels)
    alone = cache(sweep(64 << 10, 3), SMALL, "random", seeds=[9], history=MACHINE)
    assert alone.executions.equals(one.executions.filter(placement="random", seed=9))


def test_a_saved_map_places_pages_as_they_were(tmp_path: Path) -> None:
    frames = [8 * page for page in range(16)]  # all of one colour
    document = {
        "schema": "pagelab.framemap/1",
        "pid": 1,
        "colours": 8,
        "masks": [],
        "spans": [{"start": hex(START), "pages": 16, "frames": frames, "colours": [0] * 16}],
    }
    path = tmp_path / "map.json"
    path.write_text(json.dumps(document))
    for strategy in (f"exact:map={path}", f"modulo:map={path}"):
        runs = cache(sweep(64 << 10, 5), SMALL, strategy, history=MACHINE)
        # Sixteen pages compete for two ways: every access misses.
        assert runs.executions["misses.L2"].to_list() == [5 * 1024]
        assert runs.executions["replayed"].to_list() == [16]


def test_batches_give_what_one_array_gives() -> None:
    whole = cache(sweep(96 << 10, 4), SMALL, history=MACHINE)
    batches = cache(iter([sweep(96 << 10, 1)] * 4), SMALL, history=MACHINE)
    assert whole.levels.equals(batches.levels)


def test_writes_are_written_back() -> None:
    lines = sweep(128 << 10, 2)
    runs = cache([(lines, STORE)], SMALL, "page-coloring", history=MACHINE)
    row = runs.executions.row(0, named=True)
    # Every line falls out of both levels before it is written again; 1,024 lines stay in the L2 at the end.
    assert (row["memory_reads"], row["memory_writes"]) == (4096, 4096 - 1024)
    assert runs.levels["writebacks_in"].to_list() == [0, 4096 - 64]


def test_bad_input_is_refused(tmp_path: Path) -> None:
    def refused(hierarchy: object, text: str, trace: object = sweep(4096, 1), what: str = "kernel") -> None:
        with pytest.raises((BadInputError, PolicyError), match=text):
            cache(trace, hierarchy, what, history=MACHINE)  # type: ignore[arg-type] # what users get wrong

    odd = {"cache": {"level": [{"name": "L1", "size": "33000", "ways": 8}]}}
    refused(odd, "multiple of 512")
    refused({"cache": {"level": [{"name": "L1", "size": "big", "ways": 8}]}}, "not a size")
    refused({"cache": {"level": [{"name": "L1", "size": "4K", "ways": 8, "wayz": 1}]}}, "wayz")
    refused("no-such-processor", "allowed: .*zen-3")
    refused(SMALL, "not float64", np.zeros(3))
    refused(SMALL, "above", np.array([2**60], np.uint64))
    refused(SMALL, "page-colouring|allowed", what="page-colouring")
    (tmp_path / "text").write_text("this is no trace, whatever its name may be")
    refused(SMALL, "not a pagelab trace", tmp_path / "text")
    refused(SMALL, "No such file", tmp_path / "absent")
    with pytest.raises(BadInputError, match=r"used = 0\.9"):
        cache(sweep(4096, 1), SMALL, history=History(used=0.9))


def test_sizes_and_packing() -> None:
    assert [size_bytes(text, "") for text in ("32K", "1.5 MiB", 7, "2g")] == [32768, 3 << 19, 7, 2 << 30]
    assert pack([0x1000], 1, 8).tolist() == [0x1000 | 1 << 56 | 8 << 58]


@pytest.mark.parametrize("name", presets())
def test_presets_can_be_built_and_say_where_their_numbers_come_from(name: str) -> None:
    processor = processor_named(name)
    assert processor.sources
    assert all(source.what and source.where for source in processor.sources)
    runs = cache(sweep(8192, 2), name, history=History(memory_bytes=16 << 20, turnover=0))
    first = processor.needed("caches")["levels"][0]["name"]
    row = runs.levels.filter(level=first).row(0, named=True)
    assert (row["accesses"], row["misses"]) == (256, 128)


def test_allocs_platform_has_sixteen_colours() -> None:
    assert colours(processor_named("pentium-4").needed("caches")) == 16


def test_simulated_executions_are_a_study_of_cycles_and_misses_not_of_time(tmp_path: Path) -> None:
    runs = cache(sweep(64 << 10, 5), TIMED, ["kernel", "page-coloring"], seeds=5, history=MACHINE)
    (tmp_path / "sweep.trace").write_bytes(b"x")
    as_study(runs, tmp_path / "study", tmp_path / "sweep.trace")
    with Store.open(tmp_path / "study", write=False) as store:
        stored = store.runs()
        metric = store.plan().metric
        cycles, misses = store.metric(metric), store.metric("measure.simulated.misses.L2")
    assert sorted(stored["policy"].unique()) == ["kernel", "page-coloring"]
    assert stored["wall_s"].null_count() == 10
    kernel = runs.executions.filter(placement="kernel").sort("seed")
    own = stored.filter(policy="kernel").select("run_id")
    assert metric == "measure.simulated.cycles"
    assert own.join(cycles, on="run_id")["value"].to_list() == kernel["cycles"].to_list()
    assert own.join(misses, on="run_id")["value"].to_list() == kernel["misses.L2"].to_list()


def test_reports_of_simulated_executions_speak_of_simulated_cycles(tmp_path: Path) -> None:
    """They once said "wall time", at a nanosecond a cycle."""
    analysis = analysed(TIMED, tmp_path)
    labels = [metric.label for metric in analysis.metrics]
    assert {"simulated cycles of memory", "simulated L1 misses", "simulated L2 misses"} <= set(labels)
    assert "wall time" not in labels
    said = [analysis.headline, *(contrast.sentence for contrast in analysis.planned())]
    assert any("page-coloring lowers the simulated cycles of memory of sweep" in sentence for sentence in said)


def test_without_cycles_misses_are_compared(tmp_path: Path) -> None:
    analysis = analysed(SMALL, tmp_path)
    said = [contrast.sentence for contrast in analysis.planned()]
    assert any("page-coloring lowers the simulated L2 misses of sweep" in sentence for sentence in said)


def analysed(hierarchy: dict[str, object], directory: Path) -> Analysis:
    """Twelve executions on random frames and under colours, as a study that is read like any other."""
    runs = cache(sweep(64 << 10, 5), hierarchy, ["random", "page-coloring"], seeds=12, history=MACHINE)
    (directory / "sweep.trace").write_bytes(b"x")
    as_study(runs, directory / "study", directory / "sweep.trace")
    with Store.open(directory / "study", write=False) as store:
        return analyse(load(store))


def test_placements_by_file(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('name = "mine"\nframes = { random = { colors = 8, seed = 4 } }\n')
    assert placement(tmp_path / "p.toml").name == "mine"
    (tmp_path / "rule.toml").write_text('[[rule]]\nmemory = "heap"\nframes = "bin-hopping"\n')
    with pytest.raises(BadInputError, match="rules for frames"):
        cache(sweep(4096, 1), SMALL, tmp_path / "rule.toml", history=MACHINE)


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pagelab", "simulate", "cache", tmp_path / "none.trace", "--hierarchy", "zen-9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no processor is called zen-9; allowed: " in done.stderr


@pytest.mark.parametrize("name", ["all.csv", "all.parquet", "all.json"])
def test_a_full_disk_takes_no_answer_away_and_is_called_so(tmp_path: Path, name: str) -> None:
    """Regression: nothing was printed, and for Parquet the error was called a fault of pagelab itself."""
    from pagelab import trace

    path = tmp_path / "sweep.trace"
    trace.write(path, [{"address": sweep(64 << 10, 5), "kind": np.full(5 * 1024, STORE, np.uint8)}])
    full = "import resource as r; r.setrlimit(r.RLIMIT_FSIZE, (1, 1)); from pagelab.cli import main; main()"
    command = [sys.executable, "-c", full, "simulate", "cache", path, "--hierarchy", "zen-3", "-n", "1"]
    done = subprocess.run([*command, "--output", tmp_path / name], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout.startswith("zen-3: 5,120 accesses")
    assert f"{name}: File too large" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["sweep.trace"]


def test_machines_that_do_not_fit_are_refused_before_they_are_made() -> None:
    """Regression: memory grew with machines and executions until the kernel ended the process."""
    with pytest.raises(BadInputError, match=r"1000 simulated machines of 4,194,304 MiB would take .* are available"):
        cache(sweep(4096, 1), SMALL, history=History(memory_bytes=4 << 40), seeds=1000)


def test_a_trace_file_is_simulated_by_the_command(tmp_path: Path) -> None:
    from pagelab import trace

    path = tmp_path / "sweep.trace"
    trace.write(path, [{"address": sweep(64 << 10, 5), "kind": np.full(5 * 1024, STORE, np.uint8)}])
    expected = cache([(sweep(64 << 10, 5), STORE)], "pentium-4", ["kernel", "page-coloring"], seeds=3)
    command = [sys.executable, "-m", "pagelab", "simulate", "cache", path, "--hierarchy", "pentium-4", "-n", "3"]
    command += ["--frames", "kernel", "--frames", "page-coloring", "--output", tmp_path / "all.csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pentium-4: 5,120 accesses, 3 executions of each placement\n")
    assert pl.read_csv(tmp_path / "all.csv")["misses"].to_list() == expected.levels["misses"].to_list()
    for name, message in (("all.tsv", "ends in .parquet, .csv or .json"), ("no/all.csv", "run: mkdir -p ")):
        refused = subprocess.run(
            [*command[:-1], tmp_path / name, "--study", tmp_path / "study"], capture_output=True, text=True, check=False
        )
        assert refused.returncode == 2
        assert message in refused.stderr
        assert not (tmp_path / "study").exists()
    refused = subprocess.run(
        [*command, "--study", tmp_path / "no" / "study"], capture_output=True, text=True, check=False
    )
    assert "--study" in refused.stderr
    assert "there is no directory" in refused.stderr
    assert not refused.stdout
    runs = trace.write(tmp_path / "runs.trace", [np.arange(10, dtype=np.uint64)], page_bytes=4096)
    assert runs == 10
    with pytest.raises(BadInputError, match="full references"):
        cache(tmp_path / "runs.trace", SMALL, history=MACHINE)
