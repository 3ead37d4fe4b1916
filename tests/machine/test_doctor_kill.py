"""kill -9 between any two steps of a change or of a restore, on an invented machine and on this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import ASLR, READAHEAD, FakeTree, state

from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal, boot_id
from pagelab.machine.settings import Change
from pagelab.machine.sysfs import Tree

SCRIPT = Path(__file__).with_name("change_and_die.py")
CHANGE_STEPS = ["intended", "written", "checked", "applied"]
UNDO_STEPS = ["put-back", "restored"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changes this machine's settings; run: sudo make test")


def die(root: Path | str, book: Journal, step: str, *words: str) -> None:
    """Run a fix or a restore in a process of its own, which must die at ``step``."""
    command = [sys.executable, str(SCRIPT), str(root), str(book.path), step, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL, f"{command} did not reach the step: {done.stderr}"


@pytest.mark.parametrize("step", CHANGE_STEPS)
def test_killed_while_changing(tree: FakeTree, book: Journal, step: str) -> None:
    before = state(tree)
    die(tree.root, book, step, "fix", "aslr=0", "thp=always", "hugepages=7")
    assert not [item for item in Changer(tree, book).restore() if item.left]
    assert state(tree) == before


def test_killed_while_backing_out_of_a_shortfall(tree: FakeTree, book: Journal) -> None:
    before = state(tree)
    die(tree.root, book, "backed-out", "fix", "hugepages=512")
    assert not [item for item in Changer(tree, book).restore() if item.left]
    assert state(tree) == before


def test_killed_with_the_shortfall_in_place(tree: FakeTree, book: Journal) -> None:
    before = state(tree)
    die(tree.root, book, "written", "fix", "hugepages=512")
    assert tree.get("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") == "437"
    assert not [item for item in Changer(tree, book).restore() if item.left]
    assert state(tree) == before


@pytest.mark.parametrize("step", UNDO_STEPS)
def test_killed_while_restoring(tree: FakeTree, book: Journal, step: str) -> None:
    before = state(tree)
    die(tree.root, book, "applied", "fix", "aslr=0")
    die(tree.root, book, step, "restore")
    assert not [item for item in Changer(tree, book).restore() if item.left]
    assert state(tree) == before


def test_killed_while_handing_on(tree: FakeTree, book: Journal) -> None:
    """The first owner is dead, the second lives: the restore dies between its two lines."""
    before = state(tree)
    die(tree.root, book, "applied", "fix", "readahead@vda=0")
    living = Changer(tree, book)
    (second,) = living.apply([Change("readahead", READAHEAD, "64")], "run")
    die(tree.root, book, "handed-on", "restore")
    assert tree.get(READAHEAD) == "64"
    living.undo(second.id)
    assert not [item for item in Changer(tree, book).restore() if item.left]
    assert state(tree) == before


def test_two_restores_at_once_write_once(tree: FakeTree, book: Journal) -> None:
    before = state(tree)
    die(tree.root, book, "applied", "fix", "aslr=0")
    command = [sys.executable, str(SCRIPT), str(tree.root), str(book.path), "never", "restore"]
    both = [subprocess.Popen(command) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert state(tree) == before
    assert [entry.state for entry in book.read().entries] == ["restored"]


def test_part_way_pool_of_a_killed_restore_is_restored(tree: FakeTree, book: Journal) -> None:
    """Raising a pool again can be killed with some of its pages made."""
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    tree.write(pool, "100")
    die(tree.root, book, "applied", "fix", "hugepages=0")
    tree.write(pool, "40")
    (item,) = Changer(tree, book).restore()
    assert item.outcome == "restored"
    assert tree.get(pool) == "100"


@needs_root
@pytest.mark.parametrize("step", CHANGE_STEPS)
def test_killed_while_changing_this_machine(book: Journal, step: str) -> None:
    tree = Tree()
    pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    device = _spare_device(tree)
    wanted = [f"readahead@{device}=96"]
    paths = [f"/sys/class/bdi/{device}/read_ahead_kb"]
    present = tree.number(pool)
    if present is not None:
        wanted.append(f"hugepages={present + 3}")
        paths.append(pool)
    before = [tree.get(path) for path in paths]
    try:
        die("/", book, step, "fix", *wanted)
    finally:
        report = Changer(tree, book).restore()
    assert not [item.message for item in report if item.left]
    assert [tree.get(path) for path in paths] == before


def _spare_device(tree: Tree) -> str:
    """A loop device: nobody's readahead."""
    loops = [name for name in tree.names("/sys/class/bdi") if name.startswith("7:")]
    if not loops:
        pytest.skip("no loop device to change the readahead of; run: modprobe loop")
    return loops[-1]


def test_a_dead_owner_in_the_same_boot_is_seen_as_dead(tree: FakeTree, book: Journal) -> None:
    die(tree.root, book, "applied", "fix", "aslr=0")
    (entry,) = book.read().active(boot_id())
    assert entry.path == ASLR
    assert not entry.owner_lives
