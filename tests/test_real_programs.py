"""Programs nobody here wrote pass unharmed under every policy: same output, same exit code as natively."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from harness.launching import Run, Runner
from harness.natively import DATA, native
from harness.packages import need
from harness.policies import BY_NAME, Policy

PROGRAMS = DATA / "programs"
NOBODY = 65534


def governed(run: Run, policy: Policy) -> Run:
    """It succeeded, and the library was there in the processes that could take it."""
    run.succeeded()
    assert policy.is_kernel or run.root.governed, run.story()
    return run


@cache
def expected(script: str, argv: tuple[str, ...], stdin: str = os.devnull) -> str:
    """Native output of a deterministic script, once a session."""
    place = Path(os.environ.get("TMPDIR", "/tmp")) / f"pagelab-native-{os.getpid()}"
    place.mkdir()
    try:
        return native([*argv, script] if script else list(argv), place, stdin)
    finally:
        shutil.rmtree(place)


def test_bash(policy: Policy, place: Path, run_under: Runner) -> None:
    script = str(PROGRAMS / "shell.sh")
    run = governed(run_under(policy.toml, ["bash", script], cwd=str(place)), policy)
    assert run.stdout == expected(script, ("bash",)), run.story()


def test_git(policy: Policy, place: Path, run_under: Runner) -> None:
    need("git")
    script = str(PROGRAMS / "repository.sh")
    run = governed(run_under(policy.toml, ["bash", script], cwd=str(place)), policy)
    assert run.stdout == expected(script, ("bash",)), run.story()


def test_gcc_builds_a_project(
    policy: Policy, place: Path, run_under: Runner, natively_built: tuple[bytes, str]
) -> None:
    project = place / "c_project"
    shutil.copytree(DATA / "c_project", project)
    governed(run_under(policy.toml, [need("make"), "-s", "-j2", "CC=gcc"], cwd=str(project)), policy)
    assert (project / "report").read_bytes() == natively_built[0]
    run = governed(run_under(policy.toml, ["./report"], cwd=str(project)), policy)
    assert run.stdout == natively_built[1], run.story()


def test_sqlite(policy: Policy, place: Path, run_under: Runner) -> None:
    sql = str(PROGRAMS / "database.sql")
    argv = (need("sqlite3"), "-batch", "data.db")
    run = governed(run_under(policy.toml, list(argv), cwd=str(place), stdin=sql), policy)
    assert run.stdout == expected("", argv, sql), run.story()
    assert run.stdout.rstrip().endswith("ok"), run.story()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_redis(policy: Policy, place: Path, run_under: Runner) -> None:
    need("redis-server")
    need("redis-benchmark")
    command = ["bash", str(PROGRAMS / "store.sh"), str(free_port()), "2000"]
    run = governed(run_under(policy.toml, command, cwd=str(place)), policy)
    lines = ["PONG", "OK", "20000", "Background saving started", "rdb_last_bgsave_status:ok", "4990000"]
    assert run.stdout.splitlines() == lines, run.story() + (place / "server.log").read_text()
    servers = [process for process in run.the_record.processes if process.executable.endswith("redis-check-rdb")]
    servers += [process for process in run.the_record.processes if "redis-server" in process.executable]
    assert policy.is_kernel or (servers and all(process.governed for process in servers)), run.story()


@cache
def python_with_tests() -> str:
    """A Python that has its own tests installed (Debian keeps them in a package of their own)."""
    found = {sys.executable, "/usr/bin/python3", *(shutil.which(f"python3.{minor}") or "" for minor in range(11, 16))}
    show = "import sys, test.test_mmap, test.test_threading, test.test_subprocess; print(sys.executable)"
    for candidate in sorted(found - {""}):
        done = subprocess.run([candidate, "-c", show], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    pytest.fail(f"no Python with its own tests; run: apt-get install libpython{version}-testsuite")


def python_tests(policy: Policy, module: str, place: Path, run_under: Runner, *only: str) -> None:
    # The ignored test fails natively wherever site-packages import threading at start.
    ignore = ["-i", "test_import_from_another_thread"]
    command = [python_with_tests(), "-m", "test", "-q", *ignore, *only, module]
    run = governed(run_under(policy.toml, command, cwd=str(place), timeout_s=220.0), policy)
    assert "result: success" in run.stdout.lower(), run.story()


@pytest.mark.by_turns(4)
def test_python_test_mmap(policy: Policy, place: Path, run_under: Runner) -> None:
    python_tests(policy, "test_mmap", place, run_under)


@pytest.mark.by_turns(4)
def test_python_test_threading_all_2m(place: Path, run_under: Runner) -> None:
    python_tests(BY_NAME["all-2M"], "test_threading", place, run_under)


@pytest.mark.slow
def test_python_test_subprocess_mosaic(place: Path, run_under: Runner) -> None:
    python_tests(BY_NAME["mosaic"], "test_subprocess", place, run_under, "-m", "POSIXProcessTestCase")


@pytest.mark.slow
@pytest.mark.parametrize("module", ["test_threading", "test_subprocess"])
def test_python_long(policy: Policy, module: str, place: Path, run_under: Runner) -> None:
    python_tests(policy, module, place, run_under)


STRESSORS = {
    "malloc": "--malloc 2 --malloc-bytes 32M --malloc-pthreads 2",
    "mmap": "--mmap 2 --mmap-bytes 24M --mmap-mprotect",
    "mremap": "--mremap 2 --mremap-bytes 16M",
    "brk": "--brk 1",
    "fork": "--fork 2",
    "madvise": "--madvise 1",
}


def stress(policy: Policy, stressor: str, seconds: float, everyones: Path, run_under: Runner) -> None:
    """As nobody: as root, stress-ng's madvise would poison real memory. The limit stops brk from taking all of it."""
    arguments = f"{STRESSORS[stressor]} --verify --timeout {seconds} --no-rand-seed --temp-path {everyones}"
    command = ["bash", "-c", f"ulimit -d 1500000; exec {need('stress-ng')} {arguments}"]
    user = "nobody" if os.geteuid() == 0 else None
    run = governed(run_under(policy.toml, command, cwd=str(everyones), user=user), policy)
    assert "successful run completed" in run.stderr + run.stdout, run.story()
    assert "fail:" not in run.stderr + run.stdout, run.story()


@pytest.mark.parametrize("stressor", STRESSORS)
@pytest.mark.parametrize("name", ["all-2M", "mosaic"])
def test_stress_ng(name: str, stressor: str, everyones: Path, run_under: Runner) -> None:
    stress(BY_NAME[name], stressor, 1, everyones, run_under)


@pytest.mark.slow
@pytest.mark.parametrize("stressor", STRESSORS)
def test_stress_ng_long(policy: Policy, stressor: str, everyones: Path, run_under: Runner) -> None:
    stress(policy, stressor, 5, everyones, run_under)
