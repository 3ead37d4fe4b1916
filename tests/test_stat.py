"""``pagelab stat``: the live counters of frame placement, of a real engine and as text."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from harness.frames import _missing as frames_missing
from pagelab.errors import BadInputError
from pagelab.placement import NoSuchProcessError, live, procfs, stat_table
from pagelab.placement.live import ByColour, EngineStat, ProcessStat, Stat, StrategyStat

PAGES = 2000
# Touches PAGES pages of anonymous memory, tells its number, and ends when its input does; its child has none of that.
PROGRAM = f"""
import mmap, os, subprocess, sys
area = mmap.mmap(-1, {PAGES} * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for at in range(0, {PAGES} * 4096, 4096):
    area[at] = 1
print(os.getpid(), flush=True)
sys.stdin.read()
"""

NEEDS_FRAMES = pytest.mark.skipif(frames_missing() is not None, reason=str(frames_missing()))


def strategy(**values: int) -> StrategyStat:
    by_colour = ByColour(requests=[6, 4], placed=[6, 3], fallbacks=[0, 1])
    return StrategyStat(
        number=0, kind="page-coloring", colours=2, values=values, out_of_reach_bytes={"larger-page": 2 << 20},
        by_colour=by_colour,
    )  # fmt: skip


def process(engine: EngineStat | None, *strategies: StrategyStat) -> ProcessStat:
    return ProcessStat(pid=7, ppid=1, executable="/bin/x", state="active", engine=engine, strategies=list(strategies))


def rendered(table: object) -> str:
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table)
    return console.export_text()


def test_requests_and_what_became_of_them_are_shown_by_strategy_and_colour() -> None:
    asked = strategy(requests=10, placed=9, fallbacks=1, zero_pages=0, faults=4, demand_pages=10)
    lines = rendered(stat_table.strategies(process(None, asked))).splitlines()
    cells = {line[:30].strip(): line[30:].strip() for line in lines[1:]}
    assert lines[0].strip() == "0 page-coloring"
    assert cells["pages requested"] == "10"
    assert cells["placed as asked"] == "9 (90.0%)"
    assert cells["on another colour or frame"] == "1"
    assert cells["pages a fault"] == "2.5"
    assert cells["out of reach"] == "larger-page 2M"
    rows = [line.split() for line in rendered(stat_table.colours(asked)).splitlines()[1:]]
    assert rows[:2] == [["0", "6", "6", "0"], ["1", "4", "3", "1"]]


def test_a_strategy_without_requests_has_no_shares() -> None:
    text = rendered(stat_table.strategies(process(None, strategy())))
    assert "%" not in text
    assert "pages a fault" in text


def test_folded_colours_are_named_so() -> None:
    folded = strategy().model_copy(update={"colours": 4096})
    assert "colour modulo 2" in rendered(stat_table.colours(folded))


def test_where_the_engine_stands_is_said_in_words() -> None:
    def said(engine: EngineStat | None) -> str:
        return " ".join(stat_table.engine(process(engine)))

    assert "not started" in said(None)
    failed = EngineStat(state="failed", failure="no-userfaultfd", errno=1, values={})
    assert said(failed) == "engine: failed: no-userfaultfd (errno 1); the kernel places the pages"
    values = {"waits": 3, "wait_ns": 4_200_000, "pool_bytes": 2 << 20, "pool_peak_bytes": 4 << 20, "refills": 2}
    running = EngineStat(state="running", failure="none", errno=None, values=values)
    assert "3 faults waited 4.2 ms for a refill" in said(running)
    assert "pool: 2M now, 4M at most" in said(running)
    lost = running.model_copy(update={"values": values | {"lost_descriptors": 5}})
    assert "closed or replaced the engine's descriptor 5 times" in said(lost)


def test_a_file_of_another_version_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"cannot read the counters of process 9: .*another version of pagelab"):
        live.decode(b"nothing of the kind", 9)


def test_a_process_that_does_not_exist() -> None:
    with pytest.raises(NoSuchProcessError, match="there is no process 4194999"):
        live.collect(4194999)


def test_a_process_that_has_ended_and_not_been_waited_for() -> None:
    ended = subprocess.Popen(["true"])
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    try:
        with pytest.raises(NoSuchProcessError, match="has ended and waits for its parent"):
            live.collect(ended.pid)
    finally:
        ended.wait()


def test_a_process_that_does_not_run_under_pagelab_is_told_how_to() -> None:
    with pytest.raises(live.NotGovernedError, match=r"does not run under pagelab; start a program .* pagelab run"):
        live.collect(os.getpid())
    with pytest.raises(live.NotGovernedError, match="no process of the tree"):
        live.collect(os.getpid(), tree=True)


HINTED = "default page-coloring colors 16 for heap anon\nplaced 12\nunasked 0\n"


@pytest.mark.parametrize("tree", [False, True])
def test_a_process_whose_frames_the_kernel_places_is_sent_to_its_hints(
    monkeypatch: pytest.MonkeyPatch, tree: bool
) -> None:
    pid = os.getpid()
    of_proc = procfs.lines
    shown = {f"/proc/{pid}/page_hints": HINTED.splitlines()}
    monkeypatch.setattr(live, "lines", lambda path: shown.get(path) or of_proc(path))
    with pytest.raises(live.PlacedByKernelError) as refused:
        live.collect(pid, tree=tree)
    assert str(refused.value).endswith(f"run: cat /proc/{pid}/page_hints; pagelab stat --system")
    assert "does not run under pagelab" not in str(refused.value)


@pytest.mark.parametrize(
    ("line", "places"),
    [
        ("default page-coloring colors 16", True),
        ("default usual for stack", False),
        ("file random colors 8 seed 0", True),
        ("7f0000003000-7f0000005000 bin-hopping colors 8 first 0", True),
        ("7f0000003000-7f0000005000 usual", False),
        ("placed 12", False),
    ],
)
def test_lines_of_hints_are_told_from_counts(line: str, places: bool) -> None:
    assert live._places(line) == places


def test_somebody_elses_process_asks_for_sudo() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs a process of root beside one that is not; run: sudo make test")
    program = (
        "import os\nfrom pagelab.placement import live\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        f"try: live.collect({os.getpid()})\nexcept Exception as error: print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert f"sudo pagelab stat {os.getpid()}" in said


@contextmanager
def governed(*flags: str) -> Iterator[tuple[int, int]]:
    """A program under a policy that has touched its memory: its process, and that of ``pagelab run`` above it."""
    command = [sys.executable, "-m", "pagelab", "run", "-q", *flags, "--", sys.executable, "-c", PROGRAM]
    above = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert above.stdin is not None
    assert above.stdout is not None
    try:
        line = above.stdout.readline()
        assert line, "the program did not start"
        yield int(line), above.pid
    finally:
        above.stdin.close()
        assert above.wait(60) == 0
        above.stdout.close()


def pagelab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pagelab", "stat", *arguments], capture_output=True, text=True, check=False
    )


@NEEDS_FRAMES
def test_a_running_program_tells_what_was_placed() -> None:
    with governed("--frames", "page-coloring:colors=16") as (pid, above):
        found = live.collect(pid)
        shown = pagelab("--by-colour", str(pid))
        in_tree = Stat.model_validate_json(pagelab("--json", "--tree", str(above)).stdout)
    (one,) = found.processes
    assert one.pid == pid
    assert one.engine is not None
    assert one.engine.state == "running"
    assert one.engine.values["pool_bytes"] > 0
    (placed,) = one.strategies
    values = placed.values
    assert (placed.kind, placed.colours) == ("page-coloring", 16)
    assert values["requests"] >= PAGES
    assert values["requests"] == values["placed"] + values["fallbacks"] + values["zero_pages"]
    for column, total in (("requests", "requests"), ("placed", "placed"), ("fallbacks", "fallbacks")):
        assert sum(getattr(placed.by_colour, column)) == values[total]
    assert max(placed.by_colour.requests) - min(placed.by_colour.requests) < 0.2 * PAGES, "every colour has its share"
    assert shown.returncode == 0, shown.stderr
    assert "0 page-coloring" in shown.stdout
    assert "strategy 0 (page-coloring) by colour" in shown.stdout
    assert pid in [process.pid for process in in_tree.processes]


@NEEDS_FRAMES
def test_a_watch_ends_with_the_process() -> None:
    with governed("--frames", "bin-hopping:colors=8") as (pid, _above):
        watching = subprocess.Popen(
            [sys.executable, "-m", "pagelab", "stat", "--json", "--watch", "0.05", str(pid)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert watching.stdout is not None
        lines = [watching.stdout.readline() for _ in range(3)]
    out, err = watching.communicate(timeout=120)
    assert watching.returncode == 0, err
    assert f"process {pid} has ended" in err
    seen = [Stat.model_validate_json(line) for line in [*lines, *out.splitlines()]]
    requests = [one.processes[0].strategies[0].values["requests"] for one in seen]
    assert requests == sorted(requests)
    assert requests[0] >= PAGES


def test_a_policy_without_frames_has_nothing_to_show() -> None:
    with governed("--pages", "4K") as (pid, _above):
        done = pagelab(str(pid))
    assert done.returncode == 2
    assert f"process {pid} runs under pagelab, but its policy leaves frames to the kernel" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["4194999"], "there is no process 4194999"),
        (["0"], "is not the number of a process"),
        (["--watch", "0", "1"], "allowed: 0.01 to 86400 seconds"),
    ],
)
def test_what_the_command_line_refuses(arguments: list[str], words: str) -> None:
    done = pagelab(*arguments)
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stdout == ""


def test_the_published_schema_is_that_of_the_code() -> None:
    published = Path(__file__).parent.parent / "docs/schema/stat-1.json"
    current = json.dumps(Stat.model_json_schema(by_alias=True), indent=2) + "\n"
    if not published.exists() or published.read_text() != current:
        published.with_suffix(".json.new").write_text(current)
    assert published.read_text() == current, f"the new version is {published}.new"
