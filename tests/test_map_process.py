"""``pagelab map`` on live processes: what it says is what the kernel says, and each refusal is clear."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.mapping import NEEDS_THP, pagelab_map, sizes
from pagelab import machine, placement
from pagelab.placement import picture, procfs, ptrace_hold, scan
from pagelab.placement.model import AddressMap, Region

M2 = 2 << 20
ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="frame numbers are for root; run: sudo make test")

# 32 MiB: 16 with MADV_HUGEPAGE and 16 with MADV_NOHUGEPAGE; of the latter, 4 stay untouched and one page is only read.
GUEST = """
import ctypes, mmap, sys, time
libc = ctypes.CDLL(None, use_errno=True)
m = 1 << 20
memory = mmap.mmap(-1, 34 * m, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
base = (ctypes.addressof(ctypes.c_char.from_buffer(memory)) + 2 * m - 1) // (2 * m) * (2 * m)
def advise(start, size, advice):
    assert libc.madvise(ctypes.c_void_p(base + start), ctypes.c_size_t(size), advice) == 0
def collapse(start, size):
    # Whatever the switches were when the pages were touched; EAGAIN means that no free huge page was found at once.
    while libc.madvise(ctypes.c_void_p(base + start), ctypes.c_size_t(size), 25) and ctypes.get_errno() == 11:
        time.sleep(0.01)
advise(0, 16 * m, 14)
advise(16 * m, 16 * m, 15)
advise(0, 28 * m, 23)
collapse(0, 16 * m)
ctypes.string_at(base + 30 * m, 1)
print(hex(base), flush=True)
if sys.argv[1:] != ["end"]:
    time.sleep(600)
"""


@pytest.fixture
def guest() -> Iterator[tuple[int, int]]:
    """(pid, address of its 32 MiB) of a process whose placement is known."""
    process = subprocess.Popen([sys.executable, "-c", GUEST], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.pid, int(process.stdout.readline(), 16)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def around(found: AddressMap, address: int) -> Region:
    return next(region for region in found.regions if region.start <= address < region.end)


@NEEDS_THP
def test_page_sizes_are_seen_where_they_lie(guest: tuple[int, int]) -> None:
    pid, base = guest
    region = around(placement.collect(pid), base)
    assert region.kind == "anon"
    tiles = [tile for mapping in region.mappings for tile in mapping.tiles if base <= tile.start < base + (32 << 20)]
    assert {(tile.start - base, tile.end - base) for tile in tiles if tile.page_bytes == M2} == {(0, 16 << 20)}
    small = sum(tile.end - tile.start for tile in tiles if tile.page_bytes < M2)
    assert small == 12 << 20, "what is only read is the shared zero page, and not resident"
    assert region.zero_bytes >= 4096


def unchanged(pid: int, use_scan: bool) -> tuple[AddressMap, list[procfs.Vma]]:
    """A map and the smaps that held all the while: under memory pressure the kernel takes file pages back."""
    for _ in range(20):
        before = procfs.mappings(pid)
        found = placement.collect(pid, use_scan=use_scan)
        if [vma.totals.get("Rss") for vma in procfs.mappings(pid)] == [vma.totals.get("Rss") for vma in before]:
            return found, before
    raise AssertionError("the process, which sleeps, changed during each of 20 looks")


@NEEDS_THP
@pytest.mark.parametrize("use_scan", [True, False], ids=["PAGEMAP_SCAN", "older kernel"])
def test_sums_are_those_of_smaps(guest: tuple[int, int], use_scan: bool) -> None:
    found, vmas = unchanged(guest[0], use_scan)
    assert sizes(found)[M2] == sum(vma.totals.get("AnonHugePages", 0) for vma in vmas)
    if use_scan:
        # smaps leaves out special mappings such as the vdso.
        resident = sum(region.resident_bytes for region in found.regions if region.kind != "special")
        rss = sum(vma.totals.get("Rss", 0) for vma in vmas if vma.path not in ("[vdso]", "[vvar]"))
        assert resident == rss
    assert found.method == ("scan" if use_scan else "pagemap")
    assert bool(found.warnings) is not use_scan


@ROOT_ONLY
def test_frames_are_those_of_pagemap(guest: tuple[int, int]) -> None:
    pid, base = guest
    region = around(placement.collect(pid, frames=True), base)
    assert region.frames is not None
    assert region.frame_runs is not None
    assert sum(run.pages for run in region.frame_runs) * 4096 >= region.resident_bytes
    with Path(f"/proc/{pid}/pagemap").open("rb") as pagemap:
        for run in region.frame_runs[:50]:
            for page in (0, run.pages - 1):
                pagemap.seek((run.start // 4096 + page) * 8)
                entry = int.from_bytes(pagemap.read(8), "little")
                assert entry & ((1 << 55) - 1) == run.frame + page
    assert max(run.pages for run in region.frame_runs) >= 512, "a 2M page is contiguous"


MTHP_GUEST = GUEST.replace("advise(0, 28 * m, 23)", "advise(0, 4 * m, 23)").replace("collapse(0, 16 * m)", "pass")


@ROOT_ONLY
@NEEDS_THP
@pytest.mark.switches_page_sizes
def test_sizes_between_base_page_and_2m_are_seen_by_root() -> None:
    offered = machine.describe()
    if 64 << 10 not in offered["mthp_bytes"] or not offered["mthp_switchable"]:
        pytest.skip("needs 64K mTHP and root; run: sudo pagelab doctor --fix thp-64K=madvise")
    switch = Path("/sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled")
    before = re.search(r"\[(\w+)\]", switch.read_text())
    assert before is not None
    # The advised range holds no whole 2 MiB block, so that 64K is the largest size that fits.
    source = MTHP_GUEST.replace("advise(0, 16 * m, 14)", "base += m // 2; advise(0, m, 14)").replace(
        "advise(0, 4 * m, 23)", "advise(0, m, 23)"
    )
    source = source.replace("advise(16 * m, 16 * m, 15)", "pass")
    try:
        switch.write_text("madvise")
        process = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, text=True)
    finally:
        try:
            assert process.stdout is not None
            base = int(process.stdout.readline(), 16)
        finally:
            switch.write_text(before[1])
    try:
        region = around(placement.collect(process.pid), base)
        assert sizes(region).get(64 << 10, 0) >= (1 << 20) - (128 << 10)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_nodes_cover_what_is_resident(guest: tuple[int, int]) -> None:
    pid, base = guest
    region = around(placement.collect(pid, use_nodes=True), base)
    assert region.nodes is not None
    assert sum(node.bytes for node in region.nodes) == region.resident_bytes
    if scan.node_count() == 1:
        assert [node.node for node in region.nodes] == [0]


def test_a_process_that_does_not_exist() -> None:
    with pytest.raises(placement.NoSuchProcessError, match="there is no process 4194999"):
        placement.collect(4194999)


def test_a_file_that_this_kernel_lacks_is_no_end_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_path: str) -> Iterator[str]:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(procfs, "lines", missing)
    with pytest.raises(placement.errors.NotPermittedError, match=f"smaps of process {os.getpid()}: this kernel"):
        procfs.mappings(os.getpid())


def test_a_thread_of_the_kernel() -> None:
    if not Path("/proc/2/comm").exists() or Path("/proc/2/comm").read_text().strip() != "kthreadd":
        pytest.skip("kernel threads are not visible here, as in a container; run on the host")
    if os.geteuid() != 0:
        pytest.skip("only root may ask; run: sudo make test")
    with pytest.raises(placement.NoSuchProcessError, match="a thread of the kernel"):
        placement.collect(2)


def test_a_process_that_has_ended_and_not_been_waited_for() -> None:
    process = subprocess.Popen(["true"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(placement.NoSuchProcessError, match="has ended and waits for its parent"):
            placement.collect(process.pid)
    finally:
        process.wait()


def test_a_process_that_ends_in_the_middle(guest: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    pid, _ = guest
    real = procfs.command

    def then_killed(asked: int) -> str:
        line = real(asked)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return line

    monkeypatch.setattr(procfs, "command", then_killed)
    with pytest.raises(placement.ProcessEndedError, match=f"process {pid} ended while .* was read"):
        placement.collect(pid)


def test_a_process_of_somebody_else(guest: tuple[int, int]) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a process of root beside one that is not; run: sudo make test")
    pid, _ = guest
    program = (
        "import os, sys\n"
        "from pagelab import placement\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"try: placement.collect({pid})\n"
        "except placement.NotPermittedError as error: print(error, error.exit_code)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert f"of process {pid}: Permission denied (errno 13)" in said
    assert f"sudo pagelab map {pid} 3" in said


def test_a_command_is_mapped_just_before_it_ends() -> None:
    traced = ptrace_hold.run(
        [sys.executable, "-c", GUEST + "import os; os._exit(7)", "end"],
        lambda pid, moment: placement.collect(pid, moment=moment),
    )
    assert (traced.moment, traced.exit_code, traced.value.moment) == ("exit", 7, "exit")
    assert sum(sizes(traced.value).values()) >= 28 << 20


def test_a_command_is_mapped_after_some_time_and_then_ended() -> None:
    started = time.monotonic()
    traced = ptrace_hold.run(["sleep", "600"], lambda pid, moment: (procfs.command(pid), moment), 0.1)
    assert traced.value == ("sleep 600", "now")
    assert traced.exit_code == -signal.SIGTERM
    assert time.monotonic() - started < 300


def test_a_command_that_ends_before_its_time_is_mapped_at_its_end() -> None:
    traced = ptrace_hold.run(["true"], lambda _pid, moment: moment, 60.0)
    assert (traced.value, traced.exit_code) == ("exit", 0)


def test_signals_reach_a_command_that_is_to_be_mapped() -> None:
    script = 'trap "exit 5" USR1; kill -USR1 $$; exit 1'
    assert ptrace_hold.run(["sh", "-c", script], lambda _pid, moment: moment).exit_code == 5


def test_a_command_that_somebody_continues_is_mapped_at_its_time() -> None:
    """SIGCONT stops a traced process in the way in which it is stopped to be looked at."""
    poke = "import os, signal, sys, time; time.sleep(0.2); os.kill(os.getppid(), signal.SIGCONT)"
    began = time.monotonic()
    mapped = ptrace_hold.run(["sh", "-c", f"{sys.executable} -c '{poke}' & exec sleep 60"], lambda *_: None, 1.5)
    assert mapped.moment == "now"
    assert time.monotonic() - began >= 1.5


@pytest.mark.parametrize("how", [[], ["--pages", "4K"]], ids=["alone", "under a policy"])
def test_a_command_has_the_signals_that_any_program_has(how: list[str]) -> None:
    """Python ignores SIGPIPE and SIGXFSZ, and Ctrl-C is for the program: what is ignored at exec stays ignored."""
    grep = ["grep", "SigIgn", "/proc/self/status"]
    usual = subprocess.run(grep, capture_output=True, text=True, check=True).stdout
    done = pagelab_map(*how, "--", *grep)
    assert usual.strip() in done.stdout


def test_threads_that_outlive_main_do_not_confuse_the_end() -> None:
    script = "import os, threading; threading.Thread(target=lambda: os._exit(3)).start(); threading.Event().wait()"
    traced = ptrace_hold.run([sys.executable, "-c", script], lambda pid, _moment: placement.collect(pid).pid)
    assert traced.exit_code == 3


def test_the_command_line_prints_a_table_and_draws(tmp_path: Path, guest: tuple[int, int]) -> None:
    pid, _ = guest
    drawing = tmp_path / "map.svg"
    result = pagelab_map("--picture", str(drawing), str(pid))
    assert result.returncode == 0, result.stderr
    assert drawing.read_text().startswith("<svg")
    assert "resident" in result.stdout


@pytest.mark.by_turns(4)
def test_pictures_in_other_formats(tmp_path: Path, guest: tuple[int, int]) -> None:
    found = placement.collect(guest[0])
    picture.write(found, tmp_path / "map.png")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    picture.write(found, tmp_path / "map.html")
    html = (tmp_path / "map.html").read_text()
    assert html.startswith("<!DOCTYPE html>")
    assert not re.search(r"<(script|link)[^>]*(src|href)=", html), "the page must not need the network"


def test_the_command_line_prints_json_that_reads_back(tmp_path: Path) -> None:
    result = pagelab_map("--json", "--stdout", "null", "-o", str(tmp_path / "map.json"), "--", "echo", "hello")
    assert result.returncode == 0, result.stderr
    found = AddressMap.model_validate_json(result.stdout)
    assert found.command == "echo hello"
    assert json.loads((tmp_path / "map.json").read_text()) == json.loads(result.stdout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["4194999"], "there is no process 4194999"),
        (["0"], "is not the number of a process"),
        (["25140", "--save", "m.json"], "before the number of a process; run: pagelab map --save m.json 25140"),
        (["25140", "25141"], "25140 25141: only one process is mapped at a time"),
        (["--at", "noon", "--", "true"], "allowed: peak, exit, or a number of seconds"),
        (["--picture", "a.gif", "--", "true"], "a name in .svg, .png or .html"),
        (["--picture", "/nonexistent/a.svg", "--", "true"], "there is no directory /nonexistent"),
        (["--", "/nonexistent"], "cannot start /nonexistent: No such file or directory (errno 2)"),
        (
            ["--stdout", "/nonexistent/x", "--", "true"],
            "cannot open /nonexistent/x: No such file or directory (errno 2)",
        ),
    ],
)
def test_what_the_command_line_refuses(arguments: list[str], words: str) -> None:
    result = pagelab_map(*arguments)
    assert result.returncode == 2
    assert words in result.stderr
    assert result.stdout == ""


def test_without_root_sizes_are_seen_and_frames_are_not() -> None:
    program = (
        "import ctypes, os\n"
        "from pagelab import placement\n"
        "from pagelab.placement import ptrace_hold\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "ctypes.CDLL(None).prctl(4, 1)  # PR_SET_DUMPABLE: a change of user forbids tracing until exec\n"
        "look = lambda pid, moment: placement.collect(pid, frames=True, use_nodes=True)\n"
        "print(ptrace_hold.run(['true'], look).value.model_dump_json(by_alias=True))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    found = AddressMap.model_validate_json(said.stdout)
    assert (found.folios, found.method) == (False, "scan")
    assert sum(sizes(found).values()) > 0
    assert all(region.frames is None and region.frame_runs is None for region in found.regions)
    assert all(sum(node.bytes for node in region.nodes or []) == region.resident_bytes for region in found.regions)


def test_under_sudo_a_command_runs_as_the_user_who_called_it() -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else; run: sudo make test")
    result = subprocess.run(
        [sys.executable, "-m", "pagelab", "map", "--", "sh", "-c", "echo user $(id -u) $(id -g)"],
        env=os.environ | {"SUDO_UID": "65534", "SUDO_GID": "65534"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "user 65534 65534\n" in result.stdout
    assert "just before it ended" in result.stdout


def test_a_failing_command_is_mapped_and_its_failure_passed_on() -> None:
    result = pagelab_map("--", "sh", "-c", "exit 3")
    assert result.returncode == 1
    assert "just before it ended" in result.stdout
    assert "exit code 3" in result.stderr


GIVES_BACK = "import time; x = bytearray(b'x') * (64 << 20); time.sleep(0.3); del x"


@pytest.mark.by_turns(4)
def test_a_command_that_gave_memory_back_is_shown_at_its_peak() -> None:
    """Not what is left, nor only the size of the peak."""
    result = pagelab_map("--", sys.executable, "-c", GIVES_BACK)
    first, second = result.stdout.splitlines()[:2]
    assert re.search(r" when it had most: [67]\d(\.\d)?M resident", first)
    assert re.fullmatch(r"at its end it had [12]?\d(\.\d+)?M; map that instead: --at exit", second)
    found = json.loads(pagelab_map("--json", "--", sys.executable, "-c", GIVES_BACK).stdout)
    assert found["moment"] == "peak"
    assert found["peak_bytes"] > 64 << 20 > 2 * found["left_bytes"]
    # What a process grows by less than a tenth after a look is not looked at again.
    assert sum(one["bytes"] for one in found["by_size"]) > found["peak_bytes"] / 1.1
    assert max(region["resident_bytes"] for region in found["regions"]) > (64 << 20) / 1.1


def test_looks_take_a_bounded_share_of_the_time() -> None:
    """Regression: 51 looks at a program of a gigabyte took 14 times as long as the program."""
    looks: list[str] = []

    def slow(_pid: int, moment: str) -> str:
        looks.append(moment)
        until = time.process_time() + (0.8 if moment == "peak" else 0)
        while time.process_time() < until:
            pass
        return moment

    grows = (
        "import time\nkept = []\nfor _ in range(60):\n    kept.append(bytearray(b'x') * (4 << 20)); time.sleep(0.02)"
    )
    ptrace_hold.run([sys.executable, "-c", grows], slow, peaks=True)
    # Two seconds are used up by three; each tenth more would be up to 30.
    assert 3 <= looks.count("peak") <= 5


def test_at_its_end_it_shows_what_is_left_and_says_so() -> None:
    result = pagelab_map("--at", "exit", "--", sys.executable, "-c", GIVES_BACK)
    first, second = result.stdout.splitlines()[:2]
    assert "just before it ended" in first
    assert re.fullmatch(r"at its peak it had [67]\d\.?\d?M; this is what is left; map it then: --at SECONDS", second)


def test_the_memory_of_what_it_executes_later_is_not_mixed_with_its_own() -> None:
    """The image before the last had more; it is another program."""
    script = "import os, time; x = bytearray(b'x') * (64 << 20); time.sleep(0.05); os.execv('/bin/true', ['true'])"
    found = AddressMap.model_validate_json(pagelab_map("--json", "--", sys.executable, "-c", script).stdout)
    assert (found.command, found.moment) == ("true", "exit")


@pytest.mark.by_turns(4)
def test_looks_at_peaks_do_not_disturb_the_program() -> None:
    """Each look stops it: its sleeps, its signals and its answer stay what they are."""
    script = (
        "import signal, time\n"
        "ticks = []\n"
        "signal.signal(signal.SIGALRM, lambda *_: ticks.append(1))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)\n"
        "kept = []\n"
        "for step in range(20):\n"
        "    kept.append(bytearray(b'x') * (4 << 20))\n"
        "    time.sleep(0.01)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print(len(kept), len(ticks) >= 15)\n"
    )
    looks: list[str] = []
    traced = ptrace_hold.run(
        [sys.executable, "-c", script + "raise SystemExit(4)"],
        lambda _pid, moment: looks.append(moment) or len(looks),
        stdout="null",
        peaks=True,
    )
    assert traced.exit_code == 4
    assert looks[-1] == "exit"
    assert 3 <= looks.count("peak") == traced.fullest <= 25
    assert pagelab_map("--json", "-o", "/dev/null", "--", sys.executable, "-c", script).stderr.startswith("20 True\n")
