"""Capture: programs whose references are known, and QEMU against valgrind's lackey."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.packages import need
from pagelab import trace
from pagelab.errors import BadInputError
from pagelab.trace import References
from pagelab.trace.capture import written_bytes

HERE = Path(__file__).parent
ARENA = 0x10000000000
PAGE = 4096
ARENA_RANGE = [(ARENA, ARENA + 2048 * PAGE)]

pytestmark = [
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs QEMU: sudo apt install qemu-user"),
]


def build(name: str, directory: Path, *flags: str) -> str:
    target = directory / name.removesuffix(".c")
    subprocess.run(["cc", "-O1", "-o", target, HERE / name, *flags], check=True)
    return str(target)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> str:
    return build("known.c", tmp_path_factory.mktemp("known"), "-pthread")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> str:
    flags = ["-nostdlib", "-static", "-no-pie", "-fno-stack-protector", "-fno-tree-vectorize"]
    return build("bare.c", tmp_path_factory.mktemp("bare"), *flags)


def everything(path: Path, **options: object) -> References:
    batches = list(trace.Trace(path).references(**options))  # type: ignore[arg-type]  # the options under test
    names = batches[0].columns() if batches else {}
    return References(**{name: np.concatenate([batch.columns()[name] for batch in batches]) for name in names})


def cli(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pagelab", "trace", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


def test_every_reference_of_a_loop_is_there_in_order(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "loop", "100000"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert (found.status, found.references) == (0, 100_000)
    assert found.kinds == {"load": 0, "store": 100_000, "fetch": 0, "other": 0}
    references = everything(tmp_path / "t")
    assert (references.address == ARENA + np.arange(100_000) % 32 * PAGE).all()
    assert (references.size == 4).all()
    assert (references.kind == trace.KINDS.index("store")).all()


def test_page_runs_are_those_of_the_references(bare: str, tmp_path: Path) -> None:
    kinds = ("load", "store", "fetch")
    trace.capture([bare], tmp_path / "full", full=True, kinds=kinds)
    trace.capture([bare], tmp_path / "runs", kinds=kinds)
    trace.convert(tmp_path / "full", tmp_path / "converted", page_bytes=4096)
    one, other = (list(trace.Trace(tmp_path / name).runs()) for name in ("runs", "converted"))
    for column in ("page", "asid", "count"):
        left, right = (np.concatenate([batch.columns()[column] for batch in batches]) for batches in (one, other))
        assert len(left) > 1000
        assert np.array_equal(left, right), column


def test_threads_have_exactly_their_own_references(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "threads"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert found.references == 4 * 100_000 + 6 * 1000
    references = everything(tmp_path / "t")
    counts = []
    for thread in np.unique(references.thread):
        addresses = references.address[references.thread == thread]
        own = int(addresses[0] - ARENA) // (16 * PAGE)
        expected = ARENA + (own * 16 + np.arange(100_000 + own * 1000) % 16) * PAGE
        assert (addresses == expected).all()
        counts.append(own)
    assert sorted(counts) == [0, 1, 2, 3]


def test_page_runs_of_threads_add_up(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "threads"], tmp_path / "t", ranges=ARENA_RANGE)
    assert found.references == 4 * 100_000 + 6 * 1000
    pages = sum(int(batch.count.sum()) for batch in trace.Trace(tmp_path / "t").runs())
    assert pages == found.references


TURNS = 600
WAYS = ("condition", "spinlock", "flag", "pause", "looking", "add", "semaphore", "pipe", "signal")


def turns_out_of_order(known: str, path: Path, way: str, *, full: bool, turns: int = TURNS) -> int:
    """References that come before one of an earlier turn."""
    command = [known, "turns", way, str(turns)]
    found = trace.capture(command, path, full=full, ranges=ARENA_RANGE, force=True)
    assert (found.status, found.references) == (0, turns * 3)
    if full:
        pages = (everything(path).address - ARENA) // PAGE
    else:
        runs = list(trace.Trace(path).runs())
        pages = np.concatenate([np.repeat(batch.page, batch.count.astype(int)) for batch in runs]) - ARENA // PAGE
    assert (np.sort(pages) == np.repeat(np.arange(turns), 3)).all()
    return int((np.diff(pages.astype(int)) < 0).sum())


@pytest.mark.parametrize("full", [True, False], ids=["full", "runs"])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_thread_did_before_it_woke_another_comes_first(
    known: str, tmp_path: Path, way: str, *, full: bool
) -> None:
    assert turns_out_of_order(known, tmp_path / "t", way, full=full) == 0


def test_what_a_thread_did_before_it_ended_comes_before_what_follows_its_join(known: str, tmp_path: Path) -> None:
    trace.capture([known, "joined"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    pages = (everything(tmp_path / "t").address - ARENA) // PAGE
    assert (pages == np.repeat(np.arange(2 * TURNS), 3)).all()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_threads_that_take_turns_are_in_order_200_times_on_a_loaded_machine(known: str, tmp_path: Path) -> None:
    load = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        wrong = [
            (way, full)
            for turn in range(200)
            for way, full in [(WAYS[turn % len(WAYS)], turn // len(WAYS) % 2 == 0)]
            # Who spins beside a load waits for whole time slices: fewer turns there.
            if turns_out_of_order(known, tmp_path / "t", way, full=full, turns=60)
        ]
    finally:
        for process in load:
            process.kill()
            process.wait()
    assert not wrong


def test_children_are_followed_through_fork_and_exec(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "children"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert [image["ended"] for image in found.images].count("exec") == 1
    ends = {tuple(image["command"][1:]): image["references"] for image in found.images if image["ended"] == "exit"}
    assert ends == {("children",): 40, ("child",): 40}
    forked = next(image for image in found.images if image["ended"] == "exec")
    assert forked["references"] == 20
    references = everything(tmp_path / "t")
    pages = {int(space): set(((references.address[references.asid == space] - ARENA) // PAGE).tolist()) for space in
             np.unique(references.asid)}  # fmt: skip
    assert sorted(pages.values(), key=min) == [{0, 2}, {1}, {3}]


def test_children_are_left_out_on_request(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "children"], tmp_path / "t", full=True, ranges=ARENA_RANGE, children=False)
    assert (found.references, len(found.images)) == (40, 1)


def pages_by_image(path: Path) -> dict[int, dict[int, int]]:
    """References to each page of the arena, by address space."""
    references = everything(path)
    pages, spaces = (references.address - ARENA) // PAGE, references.asid
    found: dict[int, dict[int, int]] = {}
    for space in np.unique(spaces):
        own, counts = np.unique(pages[spaces == space], return_counts=True)
        found[int(space)] = dict(zip(own.tolist(), counts.tolist(), strict=True))
    return found


@pytest.mark.parametrize("executes", [False, True])
def test_children_that_outlive_the_program_have_time_to_end(known: str, tmp_path: Path, *, executes: bool) -> None:
    """Regression: a child that had sent nothing by the program's end was lost, and later ended in its work."""
    argv = ["sh", "-c", f"{known} child &"] if executes else [known, "outlived"]
    found = trace.capture(argv, tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert (found.status, found.references, found.cut_off) == (0, 40 if executes else 60, 0)
    assert "killed" not in [image["ended"] for image in found.images]


def test_children_that_outlive_the_program_for_long_are_cut_off_and_told(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "outlived"], tmp_path / "t", full=True, ranges=ARENA_RANGE, grace_s=0.1)
    assert (found.status, found.references, found.cut_off) == (0, 0, 1)
    assert [image["ended"] for image in found.images] == ["exit", "killed"]


@pytest.mark.parametrize("path", ["known", "/proc/self/exe", "/proc/thread-self/exe", "/proc/%d/exe"])
@pytest.mark.parametrize("children", [True, False])
def test_a_program_that_executes_itself_is_followed(known: str, tmp_path: Path, path: str, *, children: bool) -> None:
    """Regression: by /proc/self/exe the emulator was emulated, and without children the new program was not seen."""
    argv = [known, "replaced", known if path == "known" else path]
    found = trace.capture(argv, tmp_path / "t", full=True, ranges=ARENA_RANGE, children=children)
    assert (found.status, found.notes) == (0, [])
    shown = [(image["command"][1], image["references"], image["ended"]) for image in found.images]
    assert shown == [("replaced", 10, "exec"), ("child", 40, "exit")]


def test_a_program_executes_itself_after_its_directory_changed(
    known: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(known).parent)
    found = trace.capture(["./known", "replaced", "/proc/self/exe"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert (found.status, found.references) == (0, 50)


@pytest.mark.parametrize("end_program", [False, True])
def test_children_that_are_left_out_have_no_windows(known: str, tmp_path: Path, *, end_program: bool) -> None:
    """Regression: their windows were captured, and the end of one ended the child, whose status was then lost."""
    options: dict[str, Any] = {"ranges": ARENA_RANGE, "children": False, "end_program": end_program}
    found = trace.capture([known, "forked"], tmp_path / "t", full=True, marker=True, **options)
    assert len(found.images) == 1
    assert pages_by_image(tmp_path / "t") == {0: {2: 50}}
    found = trace.capture([known, "forked"], tmp_path / "u", full=True, count=1 << 40, **options)
    assert len(found.images) == 1
    assert pages_by_image(tmp_path / "u") == {0: {0: 10, 2: 50}}


def test_windows_are_counted_in_each_process_from_its_fork(known: str, tmp_path: Path) -> None:
    """Regression: a forked child went on where its parent was, long after the window."""
    options: dict[str, Any] = {"full": True, "ranges": ARENA_RANGE, "count": 20_000}
    found = trace.capture([known, "forked"], tmp_path / "t", **options)
    parent, child = found.images
    assert (parent["references"], child["references"]) == (0, pages_by_image(tmp_path / "t")[1][1])
    assert 20 < child["references"] < 20_000
    found = trace.capture([known, "forked"], tmp_path / "u", end_program=True, **options)
    assert [image["command"][1] for image in found.images] == ["forked"]
    assert abs(found.images[0]["instructions"] - 20_000) <= 512
    found = trace.capture([known, "children"], tmp_path / "v", count=1 << 40)
    parent, child, executed = found.images
    assert child["instructions"] < 20_000 < min(parent["instructions"], executed["instructions"])


def test_the_child_of_a_thread_has_one_thread(known: str, tmp_path: Path) -> None:
    trace.capture([known, "fork-of-thread"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    references = everything(tmp_path / "t")
    assert set(zip(references.asid.tolist(), references.thread.tolist(), strict=True)) == {(0, 0), (1, 0)}


def test_references_before_a_fork_are_sent_with_it(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "forked-and-killed"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert [image["ended"] for image in found.images] == ["killed", "exit"]
    assert pages_by_image(tmp_path / "t") == {0: {0: 40}}


def test_a_program_that_is_killed_early_has_begun(known: str, tmp_path: Path) -> None:
    """Regression: before its first 32,768 references, "before the program began" was said."""
    found = trace.capture([known, "die"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert (found.status, found.references) == (-9, 0)
    assert [image["ended"] for image in found.images] == ["killed"]


def test_scripts_are_traced_as_their_interpreter(known: str, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text(f"#!/bin/sh -e\n{known} loop 100\n{known} loop $1\n")
    script.chmod(0o755)
    found = trace.capture([str(script), "23"], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert found.references == 123
    assert not found.notes


def test_a_marker_opens_and_closes_the_window(known: str, tmp_path: Path) -> None:
    found = trace.capture([known, "marked"], tmp_path / "t", full=True, ranges=ARENA_RANGE, marker=True)
    assert found.kinds == {"load": 500, "store": 0, "fetch": 0, "other": 0}


def test_the_program_ends_with_the_window_on_request(known: str, tmp_path: Path) -> None:
    command = ["--full", "--marker", "--end-program", "-o", "t", "--", known, "marked"]
    run = cli(*command, cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert "the end" not in run.stdout
    run = cli(*command[:2], "-o", "u", "--", known, "marked", cwd=tmp_path)
    assert "the end" in run.stdout


def test_a_window_of_instructions_has_as_many_fetches(known: str, tmp_path: Path) -> None:
    first, count = 200_000, 50_000
    found = trace.capture(
        [known, "loop", "100000"], tmp_path / "t", full=True, kinds=("fetch",), first=first, count=count
    )
    assert found.kinds is not None
    # It begins and ends with a translation block.
    assert abs(found.kinds["fetch"] - count) <= 512
    whole = trace.capture([known, "loop", "100000"], tmp_path / "u", full=True, kinds=("fetch",))
    assert whole.references > first + count


def test_qemu_and_lackey_see_the_same_references(bare: str, tmp_path: Path) -> None:
    need("valgrind")
    kinds = ("load", "store", "fetch")
    qemu = trace.capture([bare], tmp_path / "qemu", full=True, kinds=kinds)
    lackey = trace.capture_with_lackey([bare], tmp_path / "lackey", full=True, kinds=kinds)
    assert qemu.status == lackey.status == 7
    columns = []
    for name in ("qemu", "lackey"):
        references = everything(tmp_path / name)
        program = references.address < 0x10000000  # stacks lie elsewhere
        columns.append({key: value[program] for key, value in references.columns().items()})
    for key in ("address", "kind", "size"):
        assert np.array_equal(columns[0][key], columns[1][key]), key
    loads = 3 * len(range(0, 65536, 7)) + len(range(0, 8192, 3))
    assert qemu.kinds is not None
    assert qemu.kinds["load"] - loads in range(10)  # those of the stack


def test_lackey_leaves_out_forked_children(known: str, tmp_path: Path) -> None:
    """Regression: their lines came between the program's, and were cut by them."""
    need("valgrind")
    trace.capture_with_lackey([known, "forked"], tmp_path / "t", full=True)
    pages = (everything(tmp_path / "t").address - ARENA) // PAGE
    assert [int((pages == page).sum()) for page in range(3)] == [10, 0, 50]


def test_a_reference_across_a_page_end_counts_on_both_pages(bare: str, tmp_path: Path) -> None:
    full = trace.capture([bare], tmp_path / "full", full=True)
    runs = trace.capture([bare], tmp_path / "runs")
    assert runs.references == full.references + 2


def test_closed_descriptors_lose_nothing_and_break_no_file(known: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    found = trace.capture([known, "descriptors", str(other)], tmp_path / "t", full=True, ranges=ARENA_RANGE)
    assert found.references == 100_000
    assert len(found.images) == 1
    assert other.read_bytes() == b""


def test_a_failed_program_leaves_its_trace_and_its_exit_code(known: str, tmp_path: Path) -> None:
    run = cli("-o", "t", "--", known, "exit", cwd=tmp_path)
    assert run.returncode == 1
    assert "exit code 3; its trace is kept: t" in run.stderr
    assert cli("info", "t", cwd=tmp_path).returncode == 0


def test_a_killed_program_is_told_of(known: str, tmp_path: Path) -> None:
    run = cli("--json", "-o", "t", "--", known, "die", cwd=tmp_path)
    assert run.returncode == 1
    assert "signal 9" in run.stderr
    answer = json.loads(run.stdout)
    assert answer["status"] == -9
    assert all(image["ended"] == "killed" for image in answer["images"])


def test_simulators_warn_of_a_trace_whose_program_was_killed(known: str, tmp_path: Path) -> None:
    """Regression: the trace of a killed program was simulated like a whole one, with no word."""
    cli("-o", "t", "--", known, "die", cwd=tmp_path)
    for words in (["paging", "t", "--memory", "64M", "--json"], ["tlb", "t", "--processor", "zen-3", "--json"]):
        command = [sys.executable, "-m", "pagelab", "simulate", *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        assert "warning: t is incomplete: its program was killed; see: pagelab trace info t\n" in done.stderr
        json.loads(done.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_capture_tells_how_much_its_trace_has(tmp_path: Path, number: signal.Signals) -> None:
    """Regression: after Ctrl-C a part of the trace stayed, and only ``pagelab: interrupted`` was said. After SIGTERM
    the trace was torn, the collector's directory stayed, and the program ran on."""
    program = [sys.executable, "-c", "import os\nprint(os.getpid(), flush=True)\nwhile True: pass"]
    command = [sys.executable, "-m", "pagelab", "trace", "-o", "t", "--", *program]
    environment = os.environ | {"TMPDIR": "."}
    before = signal.signal(number, signal.SIG_DFL)  # nohup and background jobs ignore some, and so would the command
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as running:
        signal.signal(number, before)
        assert running.stdout is not None
        emulated = int(running.stdout.readline())
        running.send_signal(number)
        _, error = running.communicate(timeout=120)
    assert running.returncode == 130, error
    assert not Path(f"/proc/{emulated}").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["t"]
    assert trace.info(tmp_path / "t")["complete"]
    references = trace.info(tmp_path / "t")["references"]
    assert error.splitlines()[-1] == (
        f"pagelab: interrupted; t has the references until then ({references:,}); for all of them, repeat the command "
        "with --force"
    )


def test_a_long_capture_tells_meanwhile_how_long_and_how_much(tmp_path: Path) -> None:
    soon = (
        "import functools\nfrom pagelab.cli import main\nfrom pagelab.study import progress\n"
        "progress.meanwhile = functools.partial(progress.meanwhile, every_s=0.2)\nmain()\n"
    )
    program = [sys.executable, "-c", "for _ in range(300_000): pass"]
    command = [sys.executable, "-c", soon, "trace", "-o", "t.trace", "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert re.search(r"^pagelab: \d+ s in the emulator, \d+ MiB written$", done.stderr, re.MULTILINE), done.stderr


def test_what_is_written_of_a_trace_is_told_while_it_is_captured(known: str, tmp_path: Path) -> None:
    """Regression: it was always 0, since a captured trace has no part beside it."""
    path = tmp_path / "t"
    path.write_bytes(b"x" * (1 << 24))
    (tmp_path / "t.part-0").write_bytes(b"x" * (1 << 23))
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.01):
            seen.add(written_bytes(path))

    looking = threading.Thread(target=look)
    looking.start()
    try:
        trace.capture([known, "loop", "3000000"], path, full=True, ranges=ARENA_RANGE, force=True)
    finally:
        done.set()
        looking.join()
    assert any(0 < size < 1 << 20 for size in seen)
    assert written_bytes(path) == path.stat().st_size


def test_a_capture_that_never_began_leaves_what_was_there(tmp_path: Path) -> None:
    """Regression: --force had emptied the old trace by then; without it, an empty file refused the next try."""
    program = tmp_path / "program"
    program.write_bytes(Path("/bin/true").read_bytes()[:64])
    program.chmod(0o755)
    old = tmp_path / "old.trace"
    trace.write(old, [np.arange(10, dtype=np.uint64)], page_bytes=PAGE)
    before = old.read_bytes()
    for arguments in (["--force", "-o", old], ["-o", "new.trace"]):
        run = cli(*arguments, "--", program, cwd=tmp_path)
        assert run.returncode == 2, run.stderr
        assert "before the program began" in run.stderr
    assert old.read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"program", "old.trace"}


@pytest.mark.parametrize(("limit", "fits"), [("-Sn 20", True), ("-n 20", False)])
def test_processes_need_one_descriptor_each_and_too_many_are_told(
    known: str, tmp_path: Path, limit: str, fits: bool
) -> None:
    """Regression: the command hung where the collector had no descriptor left."""
    traced = f"{sys.executable} -m pagelab trace --full -o t --range {ARENA_RANGE[0][0]:x}-{ARENA_RANGE[0][1]:x}"
    run = subprocess.run(
        ["sh", "-c", f"ulimit {limit}; exec {traced} -- {known} crowd 24"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    if fits:
        assert run.returncode == 0, run.stderr
        assert trace.info(tmp_path / "t")["references"] == 24 * 4096
    else:
        assert run.returncode == 2, run.stderr
        assert re.search(r"cannot accept a process besides the \d+ that run at once: Too many open files", run.stderr)
        assert "ulimit -Hn" in run.stderr


def test_a_reduced_capture_says_what_it_is_exact_for(known: str, tmp_path: Path) -> None:
    trace.capture([known, "loop", "100000"], tmp_path / "t", ranges=ARENA_RANGE)
    written = trace.reduce(tmp_path / "t", tmp_path / "r", memory="128K", colours=[1, 2, 32])
    assert (written["records"], written["references"]) == (64, 100_000)
    header = trace.Trace(tmp_path / "r").header
    assert header["reduction"] == {"memory_pages": 32, "colours": [1, 2, 32]}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--", "no-such-program"], "not found"),
        (["--kinds", "other", "--", "true"], "loads, stores and fetches"),
        (["--page", "3K", "--", "true"], "power of two"),
        (["--marker", "--count", "5", "--", "true"], "not by both"),
        (["--end-program", "--", "true"], "has an end"),
        (["--range", "20-10", "--", "true"], "LOW below HIGH"),
        (["--range", "0-10000000000000000", "--", "true"], "--range 0-10000000000000000: LOW below HIGH, HIGH below"),
        (["--count", 1 << 64, "--", "true"], f"--count {1 << 64}: a number of instructions, from 1 up, below 2^64"),
        (["--first", 1 << 64, "--", "true"], f"--first {1 << 64}: a number of instructions, from 0 up, below 2^64"),
        (["--range", "x", "--", "true"], "hexadecimal"),
        (["--way", "pin", "--", "true"], "allowed: qemu, lackey"),
        (["--way", "lackey", "--marker", "--", "true"], "lackey has no windows"),
        (["--level", "0", "--", "true"], "1 to 19"),
    ],
)
def test_bad_requests_are_refused_before_anything_runs(tmp_path: Path, arguments: list[object], words: str) -> None:
    run = cli(*arguments, cwd=tmp_path)
    assert run.returncode == 2, run.stderr
    assert words in run.stderr
    assert not list(tmp_path.iterdir())


def test_a_trace_that_is_there_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "true.trace").write_text("precious")
    run = cli("--", "true", cwd=tmp_path)
    assert run.returncode == 2
    assert "--force" in run.stderr
    assert (tmp_path / "true.trace").read_text() == "precious"
    with pytest.raises(BadInputError, match="force"):
        trace.capture(["true"], tmp_path / "true.trace")


def test_without_the_emulator_the_command_to_install_it_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from pagelab.errors import MachineError
    from pagelab.trace.program import emulator

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="apt install qemu-user"):
        emulator("x86_64")
