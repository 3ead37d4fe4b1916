"""``pagelab run`` for ordinary users, in user namespaces, sandboxes and control groups: what they are told is right."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from test_doctor_cli import NOBODY, SECCOMP, doctor, reachable_python

from pagelab import paths

PROGRAM = "import sys; sys.argv[0] = '/opt/lab/bin/pagelab'; from pagelab.cli import main; main()"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="becomes another user; run: sudo make test")
x86_64 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="the filter has x86-64 call numbers; run it there")


def run(*words: str, before: list[str], python: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
        "PAGELAB_LIBRARY": str(paths.library()),
        "PAGELAB_LAUNCHER": str(paths.launcher()),
    }
    command = [*before, python, "-B", "-c", PROGRAM, "run", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=env, cwd="/")


def warnings_of(done: subprocess.CompletedProcess[str]) -> set[str]:
    assert done.returncode == 0, done.stderr
    return {warning["kind"] for warning in json.loads(done.stdout)["warnings"]}


def nobodys_python() -> str:
    python = reachable_python()
    for part in (paths.library(), paths.launcher()):
        if subprocess.run([*NOBODY, "test", "-r", str(part)], check=False).returncode:
            pytest.skip(f"user nobody cannot read {part}; run: chmod -R a+rX {part.parent}")
    return python


@needs_root
def test_an_ordinary_user_runs_2m_pages_and_hears_what_was_left_out() -> None:
    python = nobodys_python()
    done = run("--pages", "2M", "--json", "--", "true", before=NOBODY, python=python)
    assert "readahead-not-controlled" not in warnings_of(done), "nothing was asked of readahead"
    done = run("--fetch", "demand", "--json", "--", "true", before=NOBODY, python=python)
    assert "readahead-not-controlled" in warnings_of(done)
    assert json.loads(done.stdout)["settings"]["uid"] == 65534


@needs_root
def test_sizes_that_need_root_are_refused_with_the_reason() -> None:
    done = run("--pages", "64K", "--", "true", before=NOBODY, python=nobodys_python())
    assert done.returncode in (2, 3)
    assert "Traceback" not in done.stderr
    assert "64K" in done.stderr


@needs_root
def test_root_of_a_user_namespace_runs_as_the_ordinary_user_it_is() -> None:
    python = nobodys_python()
    inside = [*NOBODY, "unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount", "--mount-proc"]
    if subprocess.run([*inside, "true"], capture_output=True, check=False).returncode:
        pytest.skip("unprivileged user namespaces are off; run: sysctl kernel.unprivileged_userns_clone=1")
    done = run("--pages", "2M", "--fetch", "demand", "--json", "--", "true", before=inside, python=python)
    assert "readahead-not-controlled" in warnings_of(done)


@x86_64
def test_a_seccomp_refusal_of_counters_is_a_warning_and_the_run_goes_on() -> None:
    done = run("-e", "faults", "--json", "--", "true", before=[sys.executable, "-c", SECCOMP], python=sys.executable)
    record = json.loads(done.stdout)
    assert done.returncode == 0, done.stderr
    assert {counter["status"] for counter in record["counters"]} <= {"denied", "unsupported"}
    assert "counter-unavailable" in warnings_of(done)


@contextmanager
def memory_group(limit_bytes: int) -> Iterator[tuple[Path, Path]]:
    """A control group with a memory limit: its directory and the file that takes processes."""
    for root, name in (
        (Path("/sys/fs/cgroup"), "memory.max"),
        (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"),
    ):
        controllers = root / "cgroup.controllers"
        if name == "memory.max" and not (controllers.exists() and "memory" in controllers.read_text()):
            continue
        group = root / f"pagelab-test-{os.getpid()}"
        try:
            group.mkdir()
            (group / name).write_text(str(limit_bytes))
        except OSError:
            if group.exists():
                group.rmdir()
            continue
        try:
            yield group, group / name
        finally:
            group.rmdir()
        return
    pytest.skip(
        "no memory controller that can be used; run on a host with cgroups: mount -t cgroup2 none /sys/fs/cgroup"
    )


@needs_root
def test_a_memory_limit_is_seen_by_doctor_and_recorded_by_run() -> None:
    limit = 512 << 20
    with memory_group(limit) as (group, file):
        enter = ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
        told = json.loads(doctor("--json", "--no-noise", before=enter).stdout)
        (cgroup,) = (probe["value"] for probe in told["probes"] if probe["name"] == "cgroup")
        assert cgroup["limits"][file.name] == str(limit)
        done = run("--pages", "2M", "--json", "--", "true", before=enter, python=sys.executable)
        assert done.returncode == 0, done.stderr
        assert str(limit) in json.loads(done.stdout)["settings"]["cgroup"].values()
