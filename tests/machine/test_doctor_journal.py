"""The journal file: format, damage, ownership."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fake_machine import ASLR

from pagelab.machine import journal
from pagelab.machine.journal import Entry, Journal, JournalError


def entry(identity: str = "a" * 16, state: journal.State = "intended", **other: object) -> Entry:
    fields: dict[str, object] = {
        "id": identity,
        "time": journal.now(),
        "pid": os.getpid(),
        "boot_id": "boot",
        "path": ASLR,
        "old": "2",
        "new": "0",
        "state": state,
        "by": "test",
    }
    return Entry(**{**fields, **other})


def test_line_has_the_documented_keys_and_nothing_else(book: Journal) -> None:
    with book.locked() as open_book:
        open_book.append(entry())
    (line,) = book.path.read_text().splitlines()
    assert set(json.loads(line)) == {
        *("id", "time", "pid", "boot_id", "path", "old", "new", "state", "by", "pid_start")
    }


def test_last_line_of_an_id_counts_and_first_line_orders(book: Journal) -> None:
    with book.locked() as open_book:
        first = open_book.append(entry("1" * 16))
        open_book.append(entry("2" * 16))
        open_book.advance(first, "applied", old="1")
    assert [(e.id[0], e.state, e.old) for e in book.read().entries] == [
        ("1", "applied", "1"),
        ("2", "intended", "2"),
    ]


def test_a_line_without_pid_start_and_with_unknown_keys_is_read(book: Journal) -> None:
    raw = json.loads(entry().line())
    del raw["pid_start"]
    raw["note"] = "from a later version"
    book.path.write_text(json.dumps(raw) + "\n")
    assert book.read().entries[0].pid_start is None
    assert book.read().damaged_lines == 0


@pytest.mark.parametrize("kept", range(1, 40, 7))
def test_torn_last_line_is_ignored_and_cut_off_before_the_next(book: Journal, kept: int) -> None:
    whole = entry("1" * 16).line()
    book.path.write_text(whole + entry("2" * 16).line()[:kept])
    assert [e.id for e in book.read().entries] == ["1" * 16]
    with book.locked() as open_book:
        open_book.append(entry("3" * 16))
    assert [e.id for e in book.read().entries] == ["1" * 16, "3" * 16]
    assert book.read().damaged_lines == 0


@pytest.mark.parametrize(
    "line",
    [
        "garbage",
        "[]",
        "{}",
        '{"id": 1}',
        "\x00\x00",
        "[" * 100_000,
        json.dumps({**json.loads(entry().line()), "state": "x"}),
    ],
    ids=["text", "list", "empty", "types", "zeros", "deep", "state"],
)
def test_damaged_whole_line_is_counted_and_the_rest_is_read(book: Journal, line: str) -> None:
    book.path.write_text(entry("1" * 16).line() + line + "\n" + entry("2" * 16).line())
    snapshot = book.read()
    assert snapshot.damaged_lines == 1
    assert len(snapshot.entries) == 2


def test_no_journal_reads_as_empty(book: Journal) -> None:
    assert book.read().entries == []
    assert not book.path.exists()


def test_a_journal_others_may_write_is_refused(book: Journal) -> None:
    book.path.write_text("")
    book.path.chmod(0o666)
    with pytest.raises(JournalError, match="will not use"), book.locked():
        pass


def test_a_journal_behind_a_symbolic_link_is_refused(book: Journal, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    book.path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(JournalError, match="cannot open"), book.locked():
        pass


def test_large_journal_is_emptied_only_when_nothing_is_active(book: Journal) -> None:
    with book.locked() as open_book:
        live = open_book.append(entry("f" * 16))
        for number in range(400):
            open_book.append(entry(f"{number:016x}", "restored"))
        open_book.empty_if_done("boot")
        assert book.path.stat().st_size > journal.EMPTY_ABOVE_BYTES
        open_book.advance(live, "restored")
        open_book.empty_if_done("boot")
    assert book.path.stat().st_size == 0


def test_liveness_knows_zombies_and_reused_pids() -> None:
    mine = entry(pid_start=journal.pid_start(os.getpid()))
    assert journal.is_alive(mine)
    assert not journal.is_alive(entry(pid_start=1))
    child = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not journal.is_alive(entry(pid=child.pid))
    child.wait()
    assert not journal.is_alive(entry(pid=child.pid))


def test_lock_is_exclusive(book: Journal) -> None:
    holder = (
        "import sys, time\nfrom pathlib import Path\nfrom pagelab.machine.journal import Journal\n"
        "with Journal(Path(sys.argv[1])).locked(): print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", holder, str(book.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        with book.path.open() as file, pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        process.communicate()
    with book.locked():
        pass


@pytest.mark.parametrize("content", ["precious, without a newline", "two\nlines\n", '{"idea": 1}\nx'])
def test_a_file_of_somebody_else_is_refused_and_left_as_it_is(book: Journal, content: str) -> None:
    book.path.write_text(content)
    with pytest.raises(JournalError, match="not one, and is left as it is"), book.locked():
        pass
    assert book.path.read_text() == content


def test_a_short_write_leaves_no_half_line_that_swallows_the_next(
    book: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    with book.locked() as open_book:
        open_book.append(entry("1" * 16))
        monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:20]))
        with pytest.raises(JournalError, match="no space left"):
            open_book.append(entry("2" * 16))
        monkeypatch.undo()
        open_book.append(entry("3" * 16))
    assert [one.id[0] for one in book.read().entries] == ["1", "3"]
    assert book.read().damaged_lines == 0


def test_a_line_behind_one_that_was_cut_short_still_counts(book: Journal) -> None:
    whole = entry("2" * 16).line()
    book.path.write_text(entry("1" * 16).line() + '{"id": "torn' + whole)
    assert [one.id[0] for one in book.read().entries] == ["1", "2"]
    assert book.read().damaged_lines == 1


def test_a_journal_that_is_no_regular_file_is_refused_without_waiting(book: Journal) -> None:
    os.mkfifo(book.path)
    with pytest.raises(JournalError, match="not a regular file"), book.locked():
        pass
