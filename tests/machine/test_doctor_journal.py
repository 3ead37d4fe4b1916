"""The journal as Python reads it, and the file it refuses to write."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from fake_machine import ASLR, FakeTree

from pagelab.errors import MachineError
from pagelab.machine.change import Changer
from pagelab.machine.journal import PATH_VARIABLE, Journal, boot_id, no_2m_by_others
from pagelab.machine.settings import Change

OFF = [Change("aslr", ASLR, "0")]


def test_line_has_the_documented_keys_and_nothing_else(changer: Changer) -> None:
    changer.apply(OFF, "test")
    lines = changer.journal.path.read_text().splitlines()
    assert [json.loads(line)["state"] for line in lines] == ["intended", "applied"]
    for line in lines:
        assert set(json.loads(line)) == {
            *("id", "time", "pid", "boot_id", "path", "old", "new", "state", "by", "pid_start")
        }


def test_no_journal_reads_as_empty(book: Journal) -> None:
    assert book.read().entries == ()
    assert not book.path.exists()


def test_damage_is_counted_and_the_rest_is_read(changer: Changer) -> None:
    changer.apply(OFF, "test")
    with changer.journal.path.open("a") as file:
        file.write("garbage\n")
    snapshot = changer.journal.read()
    assert snapshot.damaged_lines == 1
    assert [(entry.path, entry.new) for entry in snapshot.active(boot_id())] == [(ASLR, "0")]


def test_a_journal_that_cannot_be_read_is_named(book: Journal) -> None:
    book.path.mkdir()
    with pytest.raises(MachineError, match=f"will not use the settings journal {book.path}: it is not a regular file"):
        book.read()


def test_a_journal_others_may_write_is_refused(changer: Changer) -> None:
    changer.journal.path.write_text("")
    changer.journal.path.chmod(0o666)
    with pytest.raises(MachineError, match=r"will not use .* with mode 666; look at it, then run: sudo rm"):
        changer.apply(OFF, "test")
    assert changer.tree.get(ASLR) == "2"


def test_a_journal_behind_a_symbolic_link_is_refused(changer: Changer, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    changer.journal.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(MachineError, match=r"cannot open .* for writing: Too many levels of symbolic links; run as"):
        changer.apply(OFF, "test")
    assert (tmp_path / "elsewhere").read_text() == ""


def test_a_journal_that_is_no_regular_file_is_refused_without_waiting(changer: Changer) -> None:
    os.mkfifo(changer.journal.path)
    with pytest.raises(MachineError, match=r"not a regular file"):
        changer.apply(OFF, "test")


@pytest.mark.parametrize("content", ["precious, without a newline", "two\nlines\n", '{"idea": 1}\nx'])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(changer: Changer, content: str) -> None:
    changer.journal.path.write_text(content)
    with pytest.raises(MachineError, match=r"not one, and is left as it is"):
        changer.apply(OFF, "test")
    assert changer.journal.path.read_text() == content


def test_liveness_knows_zombies_and_reused_pids(changer: Changer) -> None:
    (mine,) = changer.apply(OFF, "test")
    assert mine.owner_lives
    assert not replace(mine, pid_start=1).owner_lives
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not replace(mine, pid=child.pid, pid_start=None).owner_lives
    child.wait()
    assert not replace(mine, pid=child.pid, pid_start=None).owner_lives


def lock_of(book: Journal) -> Path:
    """The file whose lock the writers of a journal hold."""
    return book.path.with_name(f"{book.path.name}.lock")


def test_the_lock_is_exclusive_and_held_through_every_step(tree: FakeTree, book: Journal) -> None:
    seen: list[str] = []

    def step(name: str) -> None:
        with lock_of(book).open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        seen.append(name)

    Changer(tree, book, step=step).apply(OFF, "test")
    assert seen == ["intended", "written", "checked", "applied"]
    with lock_of(book).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_who_can_read_the_journal_cannot_stop_its_writers(changer: Changer) -> None:
    """Regression: a lock on the journal, for which reading it is enough, held every change and every restore up."""
    changer.apply(OFF, "test")
    assert stat.S_IMODE(lock_of(changer.journal).stat().st_mode) == 0o600
    with changer.journal.path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert [one.outcome for one in changer.restore()] == ["restored"]


WAITER = """
import sys
from pathlib import Path
from pagelab.machine import change
from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal
from fake_machine import FakeTree

change._QUIET_S = 0.1
Changer(FakeTree(sys.argv[1]), Journal(Path(sys.argv[2]))).restore()
"""


def test_a_restore_that_waits_names_the_holder_and_can_be_interrupted(changer: Changer, tree: FakeTree) -> None:
    """Regression: a restore that waited for the lock said nothing, and SIGINT had no effect on it."""
    changer.apply(OFF, "test")
    command = [sys.executable, "-c", WAITER, str(tree.root), str(changer.journal.path)]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])}
    with lock_of(changer.journal).open() as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        waiter = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True)
        assert waiter.stderr is not None
        said = waiter.stderr.readline()
        assert said.startswith(f"waits for the settings journal: process {os.getpid()} ("), said
        assert f"run: ps -fp {os.getpid()}" in said
        waiter.send_signal(signal.SIGINT)
        assert "KeyboardInterrupt" in waiter.communicate(timeout=20)[1]
    assert waiter.returncode != 0


FULL = """
import resource, signal, sys
from pathlib import Path
from pagelab.errors import MachineError
from pagelab.errors import MachineError
from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal
from pagelab.machine.settings import Change
from fake_machine import ASLR, THP, FakeTree

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
changer = Changer(FakeTree(sys.argv[1]), Journal(Path(sys.argv[2])))
changer.apply([Change("aslr", ASLR, "0")], "test")
length = changer.journal.path.stat().st_size
_soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (length + 20, hard))
try:
    changer.apply([Change("thp", THP, "always")], "test")
except MachineError as error:
    print(error)
assert changer.journal.path.stat().st_size == length
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
changer.apply([Change("thp", THP, "never")], "test")
"""


def test_a_short_write_changes_nothing_and_leaves_no_half_line(tree: FakeTree, book: Journal) -> None:
    command = [sys.executable, "-c", FULL, str(tree.root), str(book.path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "cannot write to the settings journal: no space left on its file system\n"
    snapshot = book.read()
    assert snapshot.damaged_lines == 0
    assert [entry.new for entry in snapshot.entries] == ["0", "never"]


def test_two_threads_wait_for_each_other_without_stopping(tree: FakeTree, book: Journal) -> None:
    """The one that waits for the lock must leave the interpreter to the one that has it."""
    command = [sys.executable, "-c", THREADS, str(tree.root), str(book.path)]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert len(book.read().active(boot_id())) == 40


THREADS = """
import sys, threading
from pathlib import Path
from pagelab.errors import MachineError
from pagelab.machine.change import Changer
from pagelab.machine.journal import Journal
from pagelab.machine.settings import Change
from fake_machine import READAHEAD, FakeTree

changer = Changer(FakeTree(sys.argv[1]), Journal(Path(sys.argv[2])))


def work(number):
    for value in range(20):
        changer.apply([Change("readahead", READAHEAD, str(number * 100 + value))], "test")


threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(
    ("setting", "new", "named"),
    [
        ("enabled", "never", True),
        ("hugepages-2048kB/enabled", "never", True),
        ("enabled", "always", False),
        ("hugepages-2048kB/enabled", "madvise", False),
        ("hugepages-16kB/enabled", "never", False),
        ("defrag", "never", False),
    ],
)
def test_who_switched_2m_pages_off_is_named_and_nobody_else(
    setting: str, new: str, named: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: every change of huge pages was named as what keeps 2M pages away, also one that allows them."""
    path = f"/sys/kernel/mm/transparent_hugepage/{setting}"
    start = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    entry = {
        "id": "1", "time": "2026-01-01T00:00:00Z", "pid": os.getpid(), "pid_start": start, "boot_id": boot_id(),
        "path": path, "old": "inherit", "new": new, "state": "applied", "by": "pagelab-launch sizes",
    }  # fmt: skip
    (tmp_path / "journal.jsonl").write_text(json.dumps(entry) + "\n")
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path / "journal.jsonl"))
    told = f"process {os.getpid()} (pagelab-launch sizes) has set {path} to never"
    assert no_2m_by_others() == (told if named else "")
