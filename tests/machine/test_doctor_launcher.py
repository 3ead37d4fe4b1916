"""The journal's two writers understand each other: what a killed launcher leaves, ``doctor --restore`` puts back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.processes import children_of
from pagelab import machine, paths
from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal
from pagelab.machine.sysfs import Tree

BDI = "/sys/class/bdi"
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes readahead; run: sudo make test")


def readahead(tree: Tree) -> dict[str, str | None]:
    return {name: tree.get(f"{BDI}/{name}/read_ahead_kb") for name in tree.names(BDI)}


def launch(tmp_path: Path, book: Journal) -> subprocess.Popen[str]:
    """A run that holds every device's readahead at 0 until it is killed."""
    request = {
        "schema": "pagelab.request/1",
        "argv": ["sleep", "60"],
        "cwd": None,
        "env": {"clear": False, "set": {}, "unset": []},
        "policy_toml": 'fetch = "demand"\n',
        "policy_path": "p.toml",
        "machine": machine.describe(),
        "preload": "auto",
        "library": str(paths.library()),
        "cpus": [],
        "aslr": None,
        "node": None,
        "user": None,
        "timeout_s": 60.0,
        "stdin": "null",
        "stdout": "null",
        "stderr": "null",
        "events": [],
        "per_process_counters": False,
        "measurements": {"fd": None, "regex": None},
        "control_readahead": True,
        "flush": {"mode": "none", "files": []},
        "run_dir_root": None,
        "record": str(tmp_path / "record.json"),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    env = {**os.environ, "PAGELAB_JOURNAL": str(book.path)}
    command = [str(paths.launcher()), str(tmp_path / "request.json")]
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)


@needs_root
def test_a_killed_launchers_readahead_is_put_back(tmp_path: Path, book: Journal) -> None:
    tree = Tree()
    before = readahead(tree)
    doctor = Changer(tree, book)
    run = launch(tmp_path, book)
    try:
        for _ in range(200):
            active = book.read().active(doctor.boot)
            if len(active) >= len(before) and all(entry.state == "applied" for entry in active):
                break
            assert run.poll() is None, run.stderr.read() if run.stderr else ""
            time.sleep(0.05)
        else:
            pytest.fail(f"readahead was not set: {book.read()}")
        owned = doctor.restore()
        assert {item.outcome for item in owned} == {"owned"}, "a run in progress keeps its settings"
        # Guard and launcher at the same moment: stopped first, so that neither can clean up after the other.
        both = [run.pid, *children_of(run.pid)]
        for pid in both:
            os.kill(pid, signal.SIGSTOP)
        for pid in both:
            os.kill(pid, signal.SIGKILL)
        run.wait(10)
        for _ in range(100):
            if not any(entry.owner_lives for entry in active):
                break
            time.sleep(0.05)
        report = doctor.restore()
    finally:
        run.kill()
        run.communicate()
        doctor.restore(force=True)
    assert {item.outcome for item in report} == {"restored"}, [item.message for item in report]
    assert readahead(tree) == before
