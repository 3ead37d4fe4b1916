"""Bundled benchmarks in studies: what becomes of `benchmarks`, of what is missing, and of the quick form."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagelab import machine
from pagelab.benchmarks import catalogue
from pagelab.study import bundled
from pagelab.study.errors import SpecError
from pagelab.study.feasible import cannot
from pagelab.study.plan import Plan
from pagelab.study.planning import plan_text
from pagelab.study.quick import quick_text
from pagelab.study.store import Store

SPEC = Path(catalogue.__file__).parent / "nondeterminism.toml"
HEAD = 'name = "s"\n[[policy]]\nname = "kernel"\n'


def plan(text: str) -> Plan:
    return plan_text(text, Path("/nowhere/study.toml"), Path("/nowhere/out"))


def test_every_benchmark_has_all_factors_and_a_name_of_its_own() -> None:
    names = [benchmark.name for benchmark in catalogue.BENCHMARKS]
    assert len(set(names)) == len(names)
    conditions = plan('benchmarks = ["*"]\n' + HEAD).conditions
    for condition in conditions:
        assert tuple(condition.factors) == catalogue.FACTORS
        assert not any("{" in value for value in [*condition.factors.values(), *condition.request.argv])
        assert (condition.metric == "wall_s") == (condition.factors["granularity"] == "process")
    assert {condition.workload_name for condition in conditions} == set(names)


def test_every_program_that_is_needed_has_a_package() -> None:
    needed = {need for benchmark in catalogue.BENCHMARKS for need in benchmark.needs}
    assert needed <= set(catalogue.PACKAGES)


def test_sets_names_and_patterns_choose() -> None:
    def names(*chosen: str) -> list[str]:
        return [benchmark.name for benchmark in catalogue.chosen(chosen)]

    assert names("scimark-lu", "fft") == ["fft", "scimark-lu"]
    assert names("java-*-aes") == ["java-limited-aes", "java-full-aes"]
    assert "gzip" in names("tools")
    assert "gcc" not in names("tools")
    with pytest.raises(SpecError, match='nothing is called "scimark"'):
        plan('benchmarks = ["scimark"]\n' + HEAD)


def test_sizes_are_those_of_this_machines_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = [
        {"level": 1, "kind": "Instruction", "size_bytes": 1},
        {"level": 1, "kind": "Data", "size_bytes": 32768},
        {"level": 2, "kind": "Unified", "size_bytes": 1 << 20},
    ]
    described = {**machine.describe(), "caches": caches}
    monkeypatch.setattr(machine, "describe", lambda: described)
    text = 'benchmarks = ["scimark-sor"]\n[parameters]\ncache = ["L1", "L2", "L3"]\nmemory = ["each"]\n' + HEAD.replace(
        'name = "s"\n', ""
    )
    conditions = plan('name = "s"\n' + text).conditions
    sizes = {
        condition.workload: condition.request.argv[condition.request.argv.index("--bytes") + 1]
        for condition in conditions
    }
    assert sizes["scimark-sor cache=L1 memory=each size=half"] == "16384"
    assert sizes["scimark-sor cache=L2 memory=each size=double"] == str(2 << 20)
    (absent,) = {reason for condition in conditions if (reason := cannot(condition, machine.describe()))}
    assert absent == "this machine has no cache L3, or does not report its size"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[parameters]\ncache = ["L4"]\n', "know no 'L4'; allowed: L1, L2, L3"),
        ('[parameters]\nsize = ["huge"]\n', "know no 'huge'; allowed: half, equal, double"),
        ("measurements = 0\n", "greater than or equal to 1"),
        ('[quick]\nexecutoins = 3\n[parameters]\nsize = ["half"]\n', "unknown key"),
    ],
)
def test_bad_settings_are_heard(text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        plan(f'name = "s"\nbenchmarks = ["native"]\n{text}[[policy]]\nname = "kernel"\n')


def test_bytes_may_be_used_by_any_workload_and_be_a_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled, "bytes_of", lambda _: 7)
    monkeypatch.setattr("pagelab.study.planning.bytes_of", lambda _: 7)
    work = '[[workload]]\nname = "w"\ncommand = "x {bytes}"\n'
    (one,) = plan(HEAD + '[parameters]\ncache = ["L2"]\nsize = ["half"]\n' + work).conditions
    assert one.request.argv == ["x", "7"]
    assert one.workload == "w cache=L2 size=half"
    (own,) = plan(HEAD + "[parameters]\nbytes = [5]\n" + work).conditions
    assert own.request.argv == ["x", "5"]
    with pytest.raises(SpecError, match="needs the parameters cache and size; size is missing"):
        plan(HEAD + '[parameters]\ncache = ["L2"]\n' + work)


def test_a_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    (condition,) = plan('benchmarks = ["cjpeg"]\n' + HEAD).conditions
    reason = cannot(condition, machine.describe())
    assert reason == "cjpeg is not installed; Debian: apt install libjpeg-turbo-progs"


def test_the_quick_form_lays_its_table_over_the_study() -> None:
    text = SPEC.read_text()
    quick, whole = plan(quick_text(text, SPEC)), plan(text)
    assert (quick.name, quick.executions, whole.executions) == ("nondeterminism-quick", 6, 20)
    assert {condition.policy for condition in quick.conditions} == {"kernel", "page-coloring", "bin-hopping"}
    assert {condition.workload_name for condition in quick.conditions} == {b.name for b in catalogue.BENCHMARKS} - {
        "python-fft",
        "pypy-limited-fft",
        "pypy-full-fft",
    }
    assert len(quick.conditions) < len(whole.conditions) / 4
    with pytest.raises(SpecError, match=r"no \[quick\] table"):
        quick_text(HEAD, SPEC)


def test_one_cpu_is_one_that_may_be_used() -> None:
    work = '[[workload]]\nname = "w"\ncommand = "x"\n'
    (condition,) = plan('cpus = "one"\n' + HEAD + work).conditions
    assert condition.request.cpus == [max(os.sched_getaffinity(0))]
    with pytest.raises(SpecError, match="cpus"):
        plan('cpus = "two"\n' + HEAD + work)


def pagelab(directory: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", *words],
        cwd=directory,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )


def test_a_newcomer_gets_benchmarks_their_inputs_and_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(
        'name = "small"\nbenchmarks = ["scimark-sparse", "perl", "ping-tcp", "optipng"]\nexecutions = 1\nwarmups = 0\n'
        'measurements = 4\ndrop_first = 1\nskip_impossible = true\n[parameters]\nsize = ["half"]\nmemory = ["once"]\n'
        '[[policy]]\nname = "kernel"\n'
    )
    # A PATH without optipng, whether this machine has it or not.
    bare = tmp_path / "bin"
    bare.mkdir()
    for program in ("perl", "sh"):
        (bare / program).symlink_to(f"/usr/bin/{program}")
    done = pagelab(tmp_path, "study", "run", "study.toml", PATH=str(bare))
    assert done.returncode == 0, done.stderr
    assert "optipng is left out: optipng is not installed; Debian: apt install optipng" in done.stderr
    with Store.open(tmp_path / "small.study", write=False) as store:
        assert set(store.runs()["status"]) == {"ok"}
        assert set(store.runs()["workload"]) == {"scimark-sparse size=half memory=once cache=L2", "perl", "ping-tcp"}
        counts = store.measurements().group_by("name").len()
        reported = {name: count for name, count in counts.iter_rows() if name.partition(".")[0] != "work"}
        assert reported == {"scimark.sparse": 4, "ping.tcp": 4}
        assert '"problem": "communication"' in "".join(store.conditions()["factors"])


@pytest.mark.by_turns(4)
def test_a_bundled_study_is_found_by_its_name(tmp_path: Path) -> None:
    done = pagelab(tmp_path, "study", "run", "nondeterminism", "--quick", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("nondeterminism-quick: ")
    assert "one answer over " in done.stdout
    assert "cannot reach the level" not in done.stdout
    assert pagelab(tmp_path, "study", "init", "mine.toml", "--from", "nondeterminism").returncode == 0
    assert (tmp_path / "mine.toml").read_text() == SPEC.read_text()
    unknown = pagelab(tmp_path, "study", "init", "other.toml", "--from", "nonesuch")
    assert unknown.returncode == 2
    assert "allowed: nondeterminism" in unknown.stderr
    nothing = pagelab(tmp_path, "study", "run", "nonesuch", "--dry-run")
    assert nothing.returncode == 2
    assert "nonesuch" in nothing.stderr
