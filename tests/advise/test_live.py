"""``pagelab advise --pid``: what a process touches, and the command that collapses it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagelab.advise import live
from pagelab.advise.design import TILE
from pagelab.advise.live import LiveAdvice, advice
from pagelab.placement import errors
from pagelab.placement.procfs import Vma

CHILD = """
import mmap, time
# Small pages, which nobody but the test makes huge: khugepaged works where "always" or an advice lets it.
always = "[always]" in open("/sys/kernel/mm/transparent_hugepage/enabled").read()
def block(prot=3):
    made = mmap.mmap(-1, 16 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=prot)
    if prot:
        if always:
            made.madvise(mmap.MADV_NOHUGEPAGE)
        made[:] = bytes(16 << 20)
        if always:
            made.madvise(mmap.MADV_HUGEPAGE)
    return made
kept = [block(), block(0), block(), block(0)]
import ctypes
print(*(hex(ctypes.addressof(ctypes.c_char.from_buffer(one))) for one in (kept[0], kept[2])), flush=True)
hot = kept[0]
while True:
    for at in range(0, 16 << 20, 4096):
        hot[at] = 1
    time.sleep(0.01)
"""


@pytest.fixture
def process() -> Iterator[tuple[int, int, int]]:
    """A process with two blocks of 16 MiB: its number, the address of the one it uses, and of the other."""
    if not Path("/sys/kernel/mm/transparent_hugepage/enabled").exists():
        pytest.skip("this kernel has no transparent huge pages; boot one built with THP")
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        hot, cold = (int(word, 16) for word in child.stdout.readline().split())
        yield child.pid, hot, cold
        child.kill()


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", "advise", *map(str, arguments)], capture_output=True, text=True
    )


def test_what_is_touched_is_told_and_the_command_collapses_it(process: tuple[int, int, int]) -> None:
    pid, hot, cold = process
    done = run("--pid", pid, "--seconds", 1, "--json")
    assert done.returncode == 0, done.stderr
    told = LiveAdvice.model_validate_json(done.stdout)
    own = {
        name: next(one for one in told.regions if one.start - TILE < at < one.end)
        for name, at in (("hot", hot), ("cold", cold))
    }
    assert own["hot"].touched_bytes >= 15 << 20
    assert own["hot"].collapse_bytes == own["hot"].end - own["hot"].start
    assert own["cold"].touched_bytes < 1 << 20
    assert own["cold"].resident_bytes >= 15 << 20
    assert "What that gains is not known" in told.verdict
    assert told.collapse is not None
    if os.geteuid() != 0:
        pytest.skip("collapsing another process's memory needs CAP_SYS_NICE; run as root")
    collapsed = subprocess.run(
        ["sh", "-c", told.collapse.removeprefix("sudo ")], capture_output=True, text=True, timeout=60
    )
    assert collapsed.returncode == 0, collapsed.stderr
    if f"{own['hot'].start:#x} True" not in collapsed.stdout:
        pytest.skip(f"this kernel has no 2M page free ({collapsed.stdout.strip()}); free one: pagelab doctor")
    after = run("--pid", pid, "--seconds", 0.1, "--json")
    huge = next(
        one.huge_bytes for one in LiveAdvice.model_validate_json(after.stdout).regions if one.start == own["hot"].start
    )
    assert huge == own["hot"].end - own["hot"].start


def test_the_text_names_the_regions_and_the_budget_holds(process: tuple[int, int, int]) -> None:
    pid, *_ = process
    done = run("--pid", pid, "--seconds", 0.5, "--budget", "4M")
    assert done.returncode == 0, done.stderr
    sizes = [int(size, 16) for size in re.findall(r"\(0x[0-9a-f]+, (0x[0-9a-f]+)\)", done.stdout)]
    assert 0 < sum(sizes) <= 4 << 20
    assert f"os.pidfd_open({pid})" in done.stdout
    # The command's line ends are escapes, and no more of it than fits.
    heading = done.stdout.splitlines()[2]
    assert heading.startswith(f"{pid} (")
    assert heading.endswith("…): private memory, touched within 0.5 s")
    assert r"\x0a" in heading


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--pid", 2**22 + 1), "there is no process 4194305"),
        (("--pid", 2), "it is a thread of the kernel"),
        (("--pid", 1, "--", "true"), "--pid and a command"),
        ((), "what is advised on? give a command"),
        (("--pid", 1, "--trace", "x"), "--trace: nothing is run with --pid"),
        (("--seconds", 3, "--", "true"), "--seconds 3: with --pid only"),
        (("--pid", 1, "--seconds", 0), "--seconds 0: not within"),
    ],
)
def test_bad_input_is_told(arguments: tuple[object, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("call", "failed"),
    [
        ("_clear", "cannot clear the accessed bits"),
        ("mappings", "cannot read smaps"),
        ("_candidates", "cannot read smaps"),
    ],
)
def test_without_rights_the_refusal_says_how_to_get_them(process: tuple[int, int, int], call: str, failed: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody without rights; run as root")
    pid, *_ = process
    arguments = f"{pid}, live._READER" if call == "mappings" else str(pid)
    code = f"import os\nfrom pagelab.advise import live\nos.setgid(65534); os.setuid(65534)\nlive.{call}({arguments})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert failed in done.stderr
    assert f"of process {pid}: Permission denied" in done.stderr
    assert f"sudo pagelab advise --pid {pid}" in done.stderr


def test_root_that_is_refused_is_not_sent_to_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the first process of a container that has more capabilities than its root."""
    monkeypatch.setattr(errors, "is_root", lambda: True)
    with (
        pytest.raises(errors.NotPermittedError) as told,
        errors.explained(1, "smaps", live._READER),
    ):
        raise PermissionError(13, "Permission denied")
    assert "sudo" not in str(told.value)
    assert str(told.value).endswith("as root of the host, with the process's number there: pagelab advise --pid PID")


def test_a_process_that_ends_meanwhile_names_the_command_for_programs() -> None:
    with (
        pytest.raises(errors.ProcessEndedError, match="before it ends: pagelab advise -- COMMAND"),
        errors.explained(1, "smaps", live._READER),
    ):
        raise ProcessLookupError(3, "No such process")


@given(
    st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9), st.integers(0, 9)), max_size=6),
    st.none() | st.integers(1, 20),
)
def test_only_touched_memory_is_advised_within_the_budget(rows: list[tuple[int, int, int]], tiles: int | None) -> None:
    """Each row: tiles of a mapping, of them touched, of them huge."""
    found = []
    for at, (size, touched, huge) in enumerate(rows):
        totals = {"Rss": size * TILE, "Referenced": min(touched, size) * TILE, "AnonHugePages": min(huge, size) * TILE}
        start = (at + 1) << 32
        found.append(("anon", Vma(start + 4096, start + (size + 1) * TILE, "rw-p", 0, 0, "", totals)))
    told = advice(1, "x", found, 1.0, None if tiles is None else tiles * TILE)
    total = sum(one.collapse_bytes for one in told.regions)
    useful = [one for one in told.regions if one.touched_bytes and one.huge_bytes < one.end - one.start]
    full = sum(one.end - one.start for one in useful)
    assert total == (full if tiles is None else min(full, tiles * TILE))
    assert all(one in useful for one in told.regions if one.collapse_bytes)
    assert told.left_out == sum(not one.collapse_bytes for one in useful)
    assert (told.collapse is None) == (total == 0)
