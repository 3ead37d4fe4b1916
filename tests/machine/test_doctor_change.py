"""Changing and restoring settings on an invented machine."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
from fake_machine import ASLR, POOL, READAHEAD, READAHEAD_2, SURPLUS, THP, FakeTree, build, state
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab.errors import BadInputError, MachineError
from pagelab.machine.change import Changer
from pagelab.machine.journal import Entry, Journal
from pagelab.machine.settings import FIXED, Change, plan

BOOT = "11111111-2222-3333-4444-555555555555"


def fix(changer: Changer, *assignments: str) -> list[Entry]:
    return changer.apply(plan(changer.tree, list(assignments)), "doctor --fix")


def test_fix_and_restore_everything(changer: Changer, tree: FakeTree) -> None:
    before = state(tree)
    fix(changer, "hugepages=100", "thp=always", "thp-64K=inherit", "readahead=0", "aslr=0")
    assert tree.get(POOL) == "100"
    assert tree.get(THP) == "always"
    assert (tree.get(READAHEAD), tree.get(READAHEAD_2)) == ("0", "0")
    report = changer.restore()
    assert [item.outcome for item in report] == ["restored"] * 6
    assert report[0].entry.path == ASLR, "latest first"
    assert state(tree) == before
    assert changer.restore() == []


def test_shortfall_names_both_numbers_and_rolls_back(changer: Changer, tree: FakeTree) -> None:
    before = state(tree)
    with pytest.raises(MachineError, match=r"cannot reserve 512 .* memory for 437 only; put back to 0; run: ") as e:
        fix(changer, "hugepages=512")
    assert e.value.exit_code == 3
    assert "or: --fix hugepages=437" in str(e.value)
    assert state(tree) == before
    assert changer.restore() == []


def test_a_shortfall_of_everything_proposes_no_less(changer: Changer, tree: FakeTree) -> None:
    tree.pool_limit = 0
    with pytest.raises(MachineError, match="memory for 0 only; put back to 0; run: ") as e:
        fix(changer, "hugepages=5")
    assert "--fix" not in str(e.value)


def test_a_failing_change_undoes_the_earlier_ones_of_the_command(changer: Changer, tree: FakeTree) -> None:
    before = state(tree)
    tree.refuse[ASLR] = errno.EROFS
    with pytest.raises(MachineError, match=r"aslr=0: .*EROFS.* 2 earlier change\(s\) of this command undone"):
        fix(changer, "thp=always", "hugepages=3", "aslr=0")
    assert state(tree) == before
    assert changer.restore() == []


def test_value_already_there_needs_no_journal(changer: Changer) -> None:
    assert fix(changer, "thp=madvise") == []
    assert changer.journal.read().entries == ()


def test_somebody_elses_change_is_left_alone_unless_forced(changer: Changer, tree: FakeTree) -> None:
    fix(changer, "aslr=0")
    tree.write(ASLR, "1")
    (item,) = changer.restore()
    assert (item.outcome, item.left) == ("changed", True)
    assert tree.get(ASLR) == "1"
    (item,) = changer.restore(force=True)
    assert item.outcome == "restored"
    assert tree.get(ASLR) == "2"


def test_a_living_owner_keeps_its_setting(changer: Changer, tree: FakeTree) -> None:
    fix(changer, "aslr=0")
    living = replace(changer, alive=lambda _entry: True)
    for force in (False, True):
        assert [item.outcome for item in living.restore(force=force)] == ["owned"]
        assert tree.get(ASLR) == "0"


def test_force_for_one_setting_takes_none_from_a_run(changer: Changer, tree: FakeTree) -> None:
    """Regression: the command that was advised for one setting put back those of runs in progress, too."""
    fix(changer, "aslr=0", "thp=always")
    tree.write(ASLR, "1")
    beside_a_run = replace(changer, alive=lambda entry: entry.path == THP)
    assert {item.entry.path: item.outcome for item in beside_a_run.restore(force=True)} == {
        THP: "owned",
        ASLR: "restored",
    }
    assert (tree.get(ASLR), tree.get(THP)) == ("2", "always")


class InterruptedTree(FakeTree):
    """Ctrl-C while the kernel fills a pool, of which ``filled`` pages are there by then; a second one while it is put
    back."""

    filled = 100

    def write(self, name: str, value: str) -> None:
        if name != POOL:
            super().write(name, value)
            return
        super().write(name, str(min(int(value), self.filled)))
        os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_undoes_all_changes_and_a_partly_filled_pool(
    changer: Changer, tree: FakeTree, capsys: pytest.CaptureFixture[str]
) -> None:
    """Regression: earlier changes of the command stayed, unmentioned, and so did the part of the pool."""
    before = state(tree)
    interrupted = replace(changer, tree=InterruptedTree(tree.root))
    with pytest.raises(KeyboardInterrupt):
        fix(interrupted, "thp=always", "aslr=0", "hugepages=512")
    assert state(tree) == before
    assert changer.restore() == []
    said = capsys.readouterr().err
    assert f"pagelab: undone: {ASLR}: 0 → 2" in said
    assert f"pagelab: undone: {THP}: always → madvise" in said
    assert f"pagelab: undone: {POOL}: " in said


def test_ctrl_c_that_can_undo_nothing_names_what_is_left(
    changer: Changer, tree: FakeTree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second Ctrl-C, while the undoing waits for the journal's lock."""

    def press(_name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pagelab._native.journal_undo", lambda *_: press(""))
    with pytest.raises(KeyboardInterrupt):
        fix(replace(changer, step=lambda name: press(name) if name == "applied" else None), "aslr=0")
    assert tree.get(ASLR) == "0"
    said = capsys.readouterr().err
    assert f"left changed: {ASLR}; to put back, run: sudo pagelab doctor --restore" in said


@pytest.mark.parametrize("order", [(0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0)])
@pytest.mark.parametrize("values", [("0", "0", "0"), ("0", "64", "0"), ("0", "64", "128"), ("64", "128", "64")])
def test_owners_of_one_setting_may_leave_in_any_order(
    changer: Changer, tree: FakeTree, order: tuple[int, ...], values: tuple[str, ...]
) -> None:
    made = [changer.apply([Change("readahead", READAHEAD, value)], "run") for value in values]
    for position in order:
        for item in made[position]:
            changer.undo(item.id)
    assert tree.get(READAHEAD) == "128"
    assert changer.restore() == []


def test_an_earlier_boots_entries_are_dropped_with_a_note(changer: Changer, tree: FakeTree) -> None:
    fix(changer, "aslr=0")
    later = replace(changer, boot="another")
    assert [item.outcome for item in later.restore()] == ["stale"]
    assert tree.get(ASLR) == "0", "a restart resets settings itself; nothing may be written for it"
    assert later.restore() == []


def test_restore_never_writes_outside_the_settings(changer: Changer, tmp_path: Path) -> None:
    victim = tmp_path / "root/etc/passwd"
    victim.parent.mkdir()
    victim.write_text("0")
    (entry,) = fix(changer, "aslr=0")
    others = ("/etc/passwd", "/proc/sys/../../etc/passwd", "/proc/sys/kernel/core_pattern")
    for path in others:
        with changer.journal.path.open("a") as file:
            file.write(json.dumps(asdict(replace(entry, id=path, path=path, old="evil"))) + "\n")
    outcomes = {item.entry.path: item.outcome for item in changer.restore(force=True)}
    assert [outcomes[path] for path in others] == ["forbidden"] * 3
    assert victim.read_text() == "0"


def test_every_setting_that_can_be_changed_can_be_restored(changer: Changer, tree: FakeTree) -> None:
    """The list of settings to be restored is in crates/settings; those of the launcher are in it, too."""
    cpufreq = "/sys/devices/system/cpu/cpufreq"
    of_patterns = (POOL, READAHEAD, f"{cpufreq}/policy0/scaling_governor", f"{Path(THP).parent}/hugepages-64kB/enabled")
    paths = {*(setting.path for setting in FIXED), *of_patterns, "/proc/sys/vm/page_hints_exec"}
    for path in paths:
        tree.path(path).parent.mkdir(parents=True, exist_ok=True)
        tree.path(path).write_text("0")
        changer.apply([Change("key", path, "1")], "test")
    assert {item.entry.path: item.outcome for item in changer.restore()} == dict.fromkeys(paths, "restored")


def test_a_setting_that_vanished_is_not_an_error(changer: Changer, tree: FakeTree) -> None:
    fix(changer, "readahead@vda=0")
    tree.path(READAHEAD).unlink()
    assert [item.outcome for item in changer.restore()] == ["gone"]
    assert changer.restore() == []


def test_a_setting_that_is_only_hidden_is_restored_later(changer: Changer, tree: FakeTree) -> None:
    """Regression: where debugfs was unmounted, or /sys masked, the journal gave the setting up."""
    fix(changer, "hugepages=10")
    hidden = tree.path(POOL).rename(tree.path(POOL).parent / "hidden")
    (left,) = changer.restore()
    assert (left.outcome, left.left) == ("failed", True)
    assert "hidden" in left.message
    assert left.message.endswith(" doctor --restore")
    hidden.rename(tree.path(POOL))
    assert [item.outcome for item in changer.restore()] == ["restored"]


def test_what_others_set_between_two_owners_stays(changer: Changer, tree: FakeTree) -> None:
    """Regression: the second owner restored what the first one had found."""
    first = replace(changer, alive=lambda entry: entry.by == "second")
    fix(first, "readahead@vda=10")
    tree.path(READAHEAD).write_text("30\n")
    changer.apply(plan(tree, ["readahead@vda=11"]), "second")
    by_outcome = {item.outcome: item.message for item in first.restore()}
    assert sorted(by_outcome) == ["owned", "superseded"]
    assert by_outcome["superseded"].endswith("another program set it to 30, which second will put back")
    assert [item.outcome for item in changer.restore()] == ["restored"]
    assert tree.get(READAHEAD) == "30"


def test_pages_in_use_are_no_failure_of_restoring(changer: Changer, tree: FakeTree) -> None:
    fix(changer, "hugepages=10")

    class InUse(FakeTree):
        def write(self, name: str, value: str) -> None:
            super().write(name, str(int(value) + 4) if name == POOL else value)
            self.path(SURPLUS).write_text("4\n")

    (item,) = replace(changer, tree=InUse(tree.root)).restore()
    assert item.outcome == "restored"
    assert "4 pages are still in use" in item.message


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("thp=sometimes", "allowed: always, madvise, never"),
        ("hugepages=-1", "whole number from 0"),
        ("hugepages=lots", "whole number from 0"),
        ("hugepages=٣", "whole number from 0"),
        ("nonsense=1", "unknown setting 'nonsense'; keys: hugepages"),
        ("aslr", "not KEY=VALUE"),
        ("aslr=", "not KEY=VALUE"),
        ("hugepages-0M=1", "not a page size"),
    ],
)
def test_bad_settings_are_refused_with_the_allowed_values(tree: FakeTree, assignment: str, said: str) -> None:
    with pytest.raises(BadInputError, match=said) as e:
        plan(tree, [assignment])
    assert e.value.exit_code == 2


def test_what_this_kernel_lacks_is_named(tree: FakeTree) -> None:
    for assignment, said in (
        ("hugepages-1G=1", "this kernel offers 2M"),
        ("thp-32K=never", "this kernel offers 64K"),
        ("governor=performance", "no frequency driver"),
        ("readahead@nvme9=0", "devices: vda"),
    ):
        with pytest.raises(MachineError, match=said):
            plan(tree, [assignment])


def test_two_keys_for_one_file_are_refused(tree: FakeTree) -> None:
    with pytest.raises(BadInputError, match="hugepages and hugepages-2M set the same file"):
        plan(tree, ["hugepages=1", "hugepages-2M=2"])


# Any interleaving of changes, leavings and restores by several processes, each of which may die at any step.


class Killed(BaseException):
    """The process died here."""


AFTER_APPEND = ("intended", "applied", "handed-on", "restored", "settled")
VALUES = {READAHEAD: ("0", "64", "128"), THP: ("always", "never", "madvise"), POOL: ("0", "5", "100", "512")}
OPERATION = st.tuples(
    st.sampled_from(["change", "change", "change", "leave", "die", "restore"]),
    st.integers(0, 2),
    st.sampled_from(list(VALUES)),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(0, 5)),
    st.integers(0, 60),
)


@dataclass(frozen=True)
class Wish:
    """What a living process set and relies on; no ``id`` where the setting had the value and nobody held it."""

    pid: int
    path: str
    value: str
    id: str | None


class World:
    """Three processes on one machine, of which each dies when it is told to, and comes back as a new one."""

    def __init__(self, root: Path) -> None:
        self.tree = build(root / "root")
        self.journal = Journal(root / "journal.jsonl")
        self.before = state(self.tree)
        self.pids = [1000, 2000, 3000]
        self.wishes: list[Wish] = []

    def changer(self, pid: int, die_at: int | None = None, torn: int = 0) -> Changer:
        left = [die_at]

        def step(name: str) -> None:
            if left[0] is None:
                return
            if left[0] == 0:
                size = self.journal.path.stat().st_size
                last = self.journal.path.read_bytes()[:-1].rfind(b"\n") + 1
                if name in AFTER_APPEND and torn:
                    # The write itself was cut short: the step after it was then never reached either.
                    with self.journal.path.open("r+b") as file:
                        file.truncate(max(last, size - torn))
                raise Killed
            left[0] -= 1

        return Changer(self.tree, self.journal, BOOT, lambda e: e.pid in self.pids, step, pid)

    def die(self, slot: int) -> None:
        self.wishes = [wish for wish in self.wishes if wish.pid != self.pids[slot]]
        self.pids[slot] += 1

    def do(self, kind: str, slot: int, path: str, value: int, die_at: int | None, torn: int) -> None:
        pid = self.pids[slot]
        changer = self.changer(pid, die_at, torn)
        try:
            if kind == "change":
                wanted = VALUES[path][value % len(VALUES[path])]
                made = changer.apply([Change("key", path, wanted)], "test")
                self.wishes.append(Wish(pid, path, wanted, made[0].id if made else None))
            elif kind == "leave" and (own := [wish for wish in self.wishes if wish.pid == pid]):
                leaving = own[value % len(own)]
                if leaving.id:
                    changer.undo(leaving.id)
                self.wishes.remove(leaving)
            elif kind == "restore":
                report = changer.restore()
                assert not [item.message for item in report if item.left]
                self.check_living()
            elif kind == "die":
                self.die(slot)
        except MachineError as error:
            if "memory for 437 only" not in str(error):
                raise
        except Killed:
            self.die(slot)

    def check_living(self) -> None:
        """With no dead owner left, each setting has the value of its latest living owner."""
        assert {e.pid for e in self.journal.read().active(BOOT)} <= set(self.pids)
        for path, wanted in {wish.path: wish.value for wish in self.wishes}.items():
            assert self.tree.get(path) == wanted


@settings(max_examples=150, deadline=None)
@given(st.lists(OPERATION, max_size=14))
def test_any_interleaving_of_changes_and_crashes_ends_restored(operations: list[tuple]) -> None:
    memory = Path("/dev/shm")
    root = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
    try:
        world = World(root)
        for operation in operations:
            world.do(*operation)
        for slot in range(3):
            world.die(slot)
        report = world.changer(1).restore()
        assert not [item.message for item in report if item.left]
        assert state(world.tree) == world.before
        assert world.journal.read().active(BOOT) == []
        assert world.changer(1).restore() == []
    finally:
        shutil.rmtree(root)


def test_the_steps_the_crash_test_knows_are_those_there_are(changer: Changer) -> None:
    """A new durable step must be added to the crash tests."""
    seen: list[str] = []
    record: Callable[[str], None] = seen.append
    watched = replace(changer, step=record)
    fix(watched, "aslr=0")
    fix(watched, "aslr=1")
    first, _second = watched.journal.read().active(watched.boot)
    watched.undo(first.id)
    watched.restore()
    with pytest.raises(MachineError):
        fix(watched, "hugepages=512")
    assert set(seen) == {
        *("intended", "written", "checked", "applied", "handed-on", "put-back", "restored", "backed-out")
    }
