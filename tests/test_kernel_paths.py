"""``pagelab-workload kernel-paths`` as users meet it: in a run, without a network, as another user, in a study."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from harness.launching import open_to_all
from pagelab import paths

STUDY = Path(__file__).parent.parent / "studies" / "kernel-paths.toml"
OVER_TCP_OR_UDP = ["select-tcp", "udp", "tcp", "tcp-connect", "tcp-bytes"]


def workload(*words: str, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    command = [*before, str(paths.workload()), "kernel-paths", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def tables() -> dict[str, list[str]]:
    """Tables and their rows, as the program lists them."""
    listed = re.findall(r"^  ([a-z]+): ([a-z0-9, -]+)$", workload("no-such-row").stderr, re.MULTILINE)
    return {table: rows.split(", ") for table, rows in listed}


def rows_of(output: str) -> list[str]:
    return re.findall(r"^  (\S+)", output, re.MULTILINE)


def test_a_run_has_a_measurement_of_each_row_and_repetition(tmp_path: Path) -> None:
    words = ["kernel-paths", "pipe", "memory-read", "switch-2p-0k", "--repetitions", "2", "--bytes", "64K"]
    command = [sys.executable, "-m", "pagelab", "run", "--json", "--", "pagelab-workload", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout[done.stdout.index("{") :])
    found = [(one["name"], one["unit"]) for one in record["measurements"]]
    rows = [("switch-2p-0k", "ns"), ("pipe", "ns"), ("memory-read", "ns/KiB")]
    assert found == [(f"kernel-paths.{name}", unit) for name, unit in rows] * 2
    assert all(one["value"] > 0 for one in record["measurements"])


def test_without_loopback_the_rows_over_it_are_named_as_left_out() -> None:
    before = ("unshare", "-n")
    if os.geteuid() != 0 or subprocess.run([*before, "true"], check=False).returncode != 0:
        pytest.skip("a network namespace cannot be made; run as root")
    done = workload("--bytes", "64K", before=before)
    assert done.returncode == 0, done.stderr
    left_out = [name for names in re.findall(r"left out: (.*?): no ", done.stderr) for name in names.split(", ")]
    assert sorted(left_out) == sorted(OVER_TCP_OR_UDP)
    assert "ip link set lo up" in done.stderr
    every = [row for rows in tables().values() for row in rows]
    assert rows_of(done.stdout) == [row for row in every if row not in OVER_TCP_OR_UDP]
    named = workload("tcp", before=before)
    assert (named.returncode, named.stdout) == (2, "")
    assert "tcp: no TCP over loopback" in named.stderr


def test_nobody_may_run_it_and_nothing_is_left(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can run programs as another user")
    open_to_all(tmp_path)
    program = shutil.copy(paths.workload(), tmp_path / "pagelab-workload")
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    done = subprocess.run(
        [program, "kernel-paths", "--bytes", "64K", "--directory", place],
        capture_output=True,
        text=True,
        check=False,
        user="nobody",
        cwd="/",
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("verified\n")
    assert list(place.iterdir()) == []


def test_the_study_has_every_row_with_its_own_metric() -> None:
    study = tomllib.loads(STUDY.read_text())
    found: dict[str, list[str]] = {}
    for one in study["workload"]:
        name = one["name"]
        assert one["command"] == ["pagelab-workload", "kernel-paths", name]
        assert one["metric"] == f"measure.kernel-paths.{name}"
        found.setdefault(one["factors"]["table"], []).append(name)
    assert found == tables()
    assert [policy["name"] for policy in study["policy"]] == ["kernel", "bin-hopping"]
