"""The journal's two writers understand each other: what a killed launcher leaves, ``doctor --restore`` puts back."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from harness.processes import children_of
from pagelab import machine, paths
from pagelab.machine.change import Changer
from pagelab.machine.journal import Entry, Journal, boot_id
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


LENT = """
mount -t tmpfs none /sys/class/bdi && mkdir /sys/class/bdi/1:0 && echo 0 > /sys/class/bdi/1:0/read_ahead_kb
exec setpriv --bounding-set=-all --inh-caps=-all "$@"
"""


@needs_root
def test_a_setting_that_others_hold_at_the_wanted_value_is_not_told_as_refused(book: Journal) -> None:
    """Regression: after `sudo pagelab doctor --fix readahead=0` an ordinary user, who cannot lock the journal, was told
    that readahead stays on."""
    for state in ("applied", "restored"):
        entry = Entry("1" * 16, "", 1 << 22, boot_id(), f"{BDI}/1:0/read_ahead_kb", "128", "0", state, "doctor")
        book.path.write_text(json.dumps(asdict(entry)) + "\n")
        os.chown(book.path.parent, 65534, 65534)
        book.path.parent.chmod(0o755)
        run = [sys.executable, "-m", "pagelab", "run", "-q", "--json", "--fetch", "demand", "--", "true"]
        env = {**os.environ, "PAGELAB_JOURNAL": str(book.path)}
        command = ["unshare", "-m", "sh", "-ec", LENT, "sh", *run]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
        record = json.loads(done.stdout)
        assert record["fetch"]["readahead_kb_during"] == {"1:0": 0}, done
        assert "readahead-not-controlled" not in {one["kind"] for one in record["warnings"]}, record["warnings"]


UNREAL = """
mount -t tmpfs none /sys/class/bdi && mkdir /sys/class/bdi/1:0 && echo 8 > /sys/class/bdi/1:0/read_ahead_kb
[ ! -d /sys/kernel/debug ] || mount -t tmpfs none /sys/kernel/debug
exec "$@"
"""


@needs_root
def test_a_setting_whose_entry_was_lost_with_the_journal_is_told(book: Journal) -> None:
    """Regression: whoever removed the journal during a run had its settings left changed, without a word."""
    run = [sys.executable, "-m", "pagelab", "run", "-q", "--json", "--fetch", "demand", "--", "rm", str(book.path)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("SUDO_")}
    command = ["unshare", "-m", "sh", "-ec", UNREAL, "sh", *run]
    env["PAGELAB_JOURNAL"] = str(book.path)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    record = json.loads(done.stdout)
    assert record["fetch"]["readahead_kb_during"] == {"1:0": 0}, done
    (told,) = [one["message"] for one in record["warnings"] if one["kind"] == "setting-not-restored"]
    path = f"{BDI}/1:0/read_ahead_kb"
    assert told.startswith(f"{path} could not be put back to 8 (journal entry "), told
    assert told.endswith(f"the settings journal has no such entry any more; run: echo 8 | sudo tee {path}"), told


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
