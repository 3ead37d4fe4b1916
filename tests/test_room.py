"""Limits that leave a program too little room for what a policy takes besides are told before it starts."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from harness.launching import Run, Runner
from harness.memory import MemoryGroup
from harness.packages import need
from pagelab import paths
from pagelab.record import RunWarning, WarningKind

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="changes settings of the machine; run: sudo make test")
LIMITS = [
    ("RLIMIT_AS", "as", 40 << 20, "ulimit -v "),
    ("RLIMIT_DATA", "data", 32 << 20, "ulimit -d "),
    ("RLIMIT_STACK", "stack", 120 << 10, "ulimit -s "),
    ("RLIMIT_FSIZE", "fsize", 128 << 10, "ulimit -f "),
]
SIZES = 'pages = "4K"'


@pytest.fixture(scope="module")
def table() -> dict[str, dict[str, int]]:
    text = subprocess.run([str(paths.launcher()), "--surcharges"], capture_output=True, text=True, check=True).stdout
    return {row["resource"]: row["adds"] for row in json.loads(text)}


def scarce(run: Run) -> dict[str, RunWarning]:
    return {w.data["resource"]: w for w in run.the_record.warnings if w.kind == WarningKind.ROOM_SCARCE}


def under(run_under: Runner, name: str, value: int) -> Runner:
    run_under.prefix = (need("prlimit"), f"--{name}={value}:", "--")
    return run_under


def test_nothing_is_told_where_nothing_is_limited(run_under: Runner) -> None:
    assert scarce(run_under(SIZES, ["true"]).succeeded()) == {}


@pytest.mark.parametrize(("name", "option", "limit", "next_command"), LIMITS)
def test_a_tight_limit_is_in_the_record_with_figures_and_the_next_command(
    name: str, option: str, limit: int, next_command: str, run_under: Runner, table: dict[str, dict[str, int]]
) -> None:
    run = under(run_under, option, limit)(SIZES, ["true"])
    found = scarce(run)
    assert list(found) == [name], run.story()
    assert (found[name].data["limit"], found[name].data["used"]) == (limit, 0)
    assert found[name].data["adds"] == (table[name]["sizes"] or found[name].data["adds"])
    assert found[name].data["adds"] > 0
    assert next_command in found[name].message


@pytest.mark.parametrize(("name", "option"), [("RLIMIT_AS", "as"), ("RLIMIT_STACK", "stack")])
@pytest.mark.parametrize(("policy", "column"), [("", "kernel"), (SIZES, "sizes")])
def test_eight_times_what_a_policy_takes_is_room_enough(
    name: str, option: str, policy: str, column: str, run_under: Runner, table: dict[str, dict[str, int]]
) -> None:
    enough = 8 * table[name][column]
    assert scarce(under(run_under, option, enough)(policy, ["true"])) == {}
    assert list(scarce(under(run_under, option, enough - 4096)(policy, ["true"]))) == [name]


def test_a_program_without_the_library_gives_nothing_up(run_under: Runner) -> None:
    assert scarce(under(run_under, "as", 40 << 20)("", ["true"], preload="never")) == {}


def test_open_files_below_the_launchers_own_need_are_refused_with_the_next_command(run_under: Runner) -> None:
    run = under(run_under, "nofile", 100)(SIZES, ["true"])
    assert run.launcher_exit == 3
    assert "run: ulimit -n 1024" in run.launcher_stderr


@contextmanager
def setting(path: Path, value: str) -> Iterator[None]:
    before = path.read_text()
    path.write_text(value)
    try:
        yield
    finally:
        path.write_text(before)


@AS_ROOT
def test_few_mappings_are_told(run_under: Runner) -> None:
    with setting(Path("/proc/sys/vm/max_map_count"), "190"):
        run = run_under(SIZES, ["true"])
    assert list(scarce(run)) == ["vm.max_map_count"], run.story()
    assert "sudo sysctl vm.max_map_count=" in scarce(run)["vm.max_map_count"].message


@AS_ROOT
def test_a_small_control_group_is_told(run_under: Runner, table: dict[str, dict[str, int]]) -> None:
    adds = table["memory of a control group"]["sizes"]
    with MemoryGroup("pagelab-test-small", 24, swap=False) as group:
        run_under.prefix = group.prefix()
        run = run_under(SIZES, ["true"]).succeeded()
    found = scarce(run)
    assert list(found) == ["memory of a control group"], run.story()
    (told,) = found.values()
    assert (told.data["limit"], told.data["adds"]) == (24 << 20, adds)
    assert 0 < told.data["used"] < 4 << 20
    assert f"| sudo tee {group.limit}" in told.message
    with MemoryGroup("pagelab-test-larger", 64, swap=False) as group:
        run_under.prefix = group.prefix()
        assert scarce(run_under(SIZES, ["true"]).succeeded()) == {}


@AS_ROOT
def test_little_space_in_the_run_directory_is_told(run_under: Runner, tmp_path: Path) -> None:
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run([need("mount"), "-t", "tmpfs", "-o", "size=512k,mode=755", "none", str(place)], check=True)
    try:
        run = run_under("", ["true"], run_dir_root=str(place)).succeeded()
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)
    found = scarce(run)
    assert list(found) == ["space in the run directory"], run.story()
    assert str(place) in found["space in the run directory"].message
    assert "--run-dir DIR" in found["space in the run directory"].message


@AS_ROOT
def test_few_processes_are_told_to_a_policy_that_starts_threads(run_under: Runner) -> None:
    """The limit is that of a user, whose other processes count."""
    from harness.frames import BY_NAME, possible

    policy = possible(BY_NAME["bin-hopping"])
    run = under(run_under, "nproc", 12)(policy.toml, ["true"], env=policy.environment(), user="daemon")
    found = scarce(run)
    assert "RLIMIT_NPROC" in found, run.story()
    assert found["RLIMIT_NPROC"].data["adds"] == 3
    assert scarce(under(run_under, "nproc", 12)(SIZES, ["true"], user="daemon")) == {}


def limited(limit: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(resource.RLIMIT_STACK, (limit, resource.RLIM_INFINITY))


def pagelab(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, preexec_fn=limited(126 << 10))


def told(text: str) -> list[str]:
    return [line for line in text.splitlines() if "RLIMIT_STACK" in line]


def test_the_terminal_has_one_line_before_the_programs_own() -> None:
    done = pagelab("run", "--pages", "4K", "--", "sh", "-c", "echo program >&2")
    assert done.returncode == 0, done.stderr
    (line,) = told(done.stderr)
    assert done.stderr.index(line) < done.stderr.index("program\n"), done.stderr
    assert line.startswith(
        "pagelab: the main stack is limited to 126 KiB (RLIMIT_STACK), and this policy takes up to 16 KiB"
    )
    assert told(pagelab("run", "--quiet", "--", "true").stderr) == []


def test_json_stays_alone_on_standard_output() -> None:
    done = pagelab("run", "--json", "--", "true")
    record: dict[str, Any] = json.loads(done.stdout)
    assert [w["data"]["resource"] for w in record["warnings"] if w["kind"] == "room-scarce"] == ["RLIMIT_STACK"]


def test_a_study_tells_each_limit_once_before_its_first_run(tmp_path: Path) -> None:
    spec = tmp_path / "study.toml"
    spec.write_text(
        'name = "limits"\nexecutions = 2\nwarmups = 0\nbaseline = "kernel"\n[[workload]]\nname = "true"\n'
        'command = ["true"]\n[[policy]]\nname = "kernel"\n[[policy]]\nname = "small"\npages = "4K"\n'
    )
    done = pagelab("study", "run", str(spec), "--into", str(tmp_path / "s"))
    assert len(told(done.stdout + done.stderr)) == 1, done.stdout + done.stderr
