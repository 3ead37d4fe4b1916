"""Captures in pools: the same pages as a native governed run's, and the part of the program that its window is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pagelab import layouts, paths, policy, trace
from pagelab.errors import BadInputError
from pagelab.layouts import footprint
from pagelab.simulate.cache_runs import cache
from pagelab.simulate.placements import placement, placement_of_pages
from pagelab.simulate.tlb_runs import tlb
from pagelab.trace.pools import of_header

GUESTS = Path(__file__).parents[1] / "guests"
FIRST, LAST = 0x660000000000 >> 12, 0x690000000000 >> 12
NATIVE = """name = "native"
{rules}
"""
RULE = """[[rule]]
memory = "{memory}"
pages = {{ mosaic = [["1048574M", "1T", "2M"]] }}
"""
"""Base pages, so that single pages can be told, and a tile at the pool's far end: blocks are aligned as with tiles."""

pytestmark = [
    pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs QEMU: sudo apt install qemu-user"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("pools")
    compile_ = ["cc", "-O1", "-pthread", "-o"]
    subprocess.run([*compile_, directory / "blocks", GUESTS / "pools" / "blocks.c"], check=True)
    subprocess.run(
        [*compile_, directory / "touched.so", "-shared", "-fPIC", GUESTS / "pools" / "touched.c"], check=True
    )
    return directory


def native_pages(command: list[str], library: Path, directory: Path) -> set[int]:
    """Pages of the pools that a native run has at its end."""
    text = NATIVE.format(rules="".join(RULE.format(memory=memory) for memory in ("heap", "anon", "arenas")))
    (directory / "native.toml").write_text(text)
    told = directory / "touched"
    with told.open("w") as out:
        os.set_inheritable(out.fileno(), True)
        run = [sys.executable, "-m", "pagelab", "run", "--policy", str(directory / "native.toml")]
        run += [
            "--env",
            f"LD_PRELOAD={library}",
            "--env",
            "TOUCHED_FD=9",
            "--",
            "sh",
            "-c",
            f'exec "$@" 9>"{told}"',
            "sh",
        ]
        subprocess.run([*run, *command], check=True, capture_output=True)
    return {int(line, 16) for line in told.read_text().split()}


def traced_pages(path: Path) -> set[int]:
    pages: set[int] = set()
    for batch in trace.Trace(path).runs():
        own = batch.page[(batch.page >= FIRST) & (batch.page < LAST)]
        pages |= set(np.unique(own).tolist())
    return pages


def pool_of(page: int) -> str:
    return ("heap", "anon", "arenas")[(page >> 28) - (FIRST >> 28)]


@pytest.mark.parametrize("mode", ["heap", "threads", "all"])
def test_pages_are_those_of_the_native_run(
    built: Path, tmp_path: Path, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = [str(built / "blocks"), mode]
    native = native_pages(command, built / "touched.so", tmp_path)
    # Loaded there, too, and silent: both programs have the same libraries.
    monkeypatch.setenv("LD_PRELOAD", str(built / "touched.so"))
    found = trace.capture(command, tmp_path / "t", pools=True)
    assert found.status == 0
    traced = traced_pages(tmp_path / "t")
    wanted = {"heap": {"heap", "anon"}, "threads": {"heap", "anon", "arenas"}, "all": {"heap", "anon", "arenas"}}[mode]
    assert {pool_of(page) for page in native} == wanted
    assert len(native) > 1000
    missing, more = ([hex(page) for page in sorted(pages)] for pages in (native - traced, traced - native))
    assert (missing[:10], more[:10]) == ([], [])


PYTHON = """
import ctypes
kept = [bytearray(n * 1000) for n in range(1, 600, 9)] + [str(n) * 9 for n in range(10_000)]
ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
"""
"""Its blocks outlive the interpreter's own end."""


def test_pages_of_a_whole_program_are_there(built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What CPython has at its end. It had more meanwhile; and what the kernel alone wrote is in no trace."""
    command = [sys.executable, "-I", "-S", "-c", PYTHON]
    native = native_pages(command, built / "touched.so", tmp_path)
    monkeypatch.setenv("LD_PRELOAD", str(built / "touched.so"))
    found = trace.capture(command, tmp_path / "t", pools=True)
    assert found.status == 0
    traced = traced_pages(tmp_path / "t")
    assert len(native) > 5000
    assert len(native - traced) <= 2, sorted(map(hex, native - traced))[:10]
    assert len(traced - native) <= 50


@pytest.mark.parametrize("mode", ["heap", "threads", "all"])
def test_blocks_lie_at_the_same_places_under_every_layout(built: Path, tmp_path: Path, mode: str) -> None:
    """And in the trace: what is simulated under a layout is where the run under it has it."""
    command = [str(built / "blocks"), mode, "tell"]
    trace.capture([*command[:2]], tmp_path / "t", pools=True)
    seen: list[int] = []
    space = footprint.of_trace(tmp_path / "t", lambda done, _: seen.append(done))
    assert seen[-1] == trace.info(tmp_path / "t")["references"]
    every = [*layouts.anchors(space), space.at("every-other", range(0, len(space), 2)), space.at("first", [0])]
    places = {}
    for layout in every:
        (tmp_path / f"{layout.name}.toml").write_text(layout.toml())
        run = [sys.executable, "-m", "pagelab", "run", "--policy", str(tmp_path / f"{layout.name}.toml"), "--"]
        done = subprocess.run([*run, *command], check=True, capture_output=True, text=True)
        places[layout.name] = [int(line, 16) for line in done.stdout.split() if line.startswith("0x")]
    traced = subprocess.run(
        [sys.executable, "-m", "pagelab", "trace", "--pools", "-o", tmp_path / "told", "--", *command],
        check=True,
        capture_output=True,
        text=True,
    )
    places["traced"] = [int(line, 16) for line in traced.stdout.split()]
    assert len(places["4K"]) > 10
    for name, found in places.items():
        assert found == places["4K"], name


def test_the_header_says_where_pools_are_and_simulations_believe_it(built: Path, tmp_path: Path) -> None:
    path = tmp_path / "t"
    trace.capture([str(built / "blocks"), "threads"], path, pools=True, full=True)
    trace.convert(path, tmp_path / "loads", kinds=["load"])
    for one in (path, tmp_path / "loads"):
        pools = of_header(trace.Trace(one).header)
        assert {pool.memory: pool.start for pool in pools} == {
            "heap": 0x660000000000,
            "anon": 0x670000000000,
            "arenas": 0x680000000000,
        }
    wanted = [placement_of_pages(text) for text in ("4K", "arenas=2M", "anon=2M")]
    small, arenas, anon = (row["m"] for row in tlb(path, "broadwell", wanted).executions.iter_rows(named=True))
    assert max(arenas, anon) < small
    assert arenas != anon
    with pytest.raises(BadInputError, match="in one pool, and the trace has each in its own"):
        tlb(path, "broadwell", placement_of_pages("anon+arenas=0-2M:2M"))


def test_a_policy_says_which_pools_there_are(built: Path, tmp_path: Path) -> None:
    together = policy.parse('name = "together"\n[[rule]]\nmemory = ["anon", "arenas"]\npages = "2M"\n', "p")
    trace.capture([str(built / "blocks"), "threads"], tmp_path / "t", pools=together)
    assert {pool.memory: pool.start for pool in of_header(trace.Trace(tmp_path / "t").header)} == {
        "anon": 0x670000000000,
        "arenas": 0x670000000000,
    }
    assert {pool_of(page) for page in traced_pages(tmp_path / "t")} == {"anon"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('frames = "bin-hopping"', "frames are not placed"),
        ('[[rule]]\nmemory = "anon"\nat_least = "1M"\npages = "2M"', "several pools"),
        ('[[rule]]\nmemory = "anon"\npages = "1G"', "reserved pages"),
        ('fetch = "demand"', "no pools"),
    ],
)
def test_policies_that_a_capture_cannot_follow_are_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        trace.capture(["true"], tmp_path / "t", pools=policy.parse(f'name = "p"\n{text}\n', "p"))
    assert not (tmp_path / "t").exists()


def test_a_static_program_is_refused(tmp_path: Path) -> None:
    subprocess.run(["cc", "-static", "-o", tmp_path / "static", "-x", "c", "-"], input=b"int main(){}", check=True)
    with pytest.raises(BadInputError, match="linked statically"):
        trace.capture([str(tmp_path / "static")], tmp_path / "t", pools=True)


def test_programs_that_it_executes_have_pools_too(built: Path, tmp_path: Path) -> None:
    command = ["sh", "-c", f'"{built / "blocks"}" heap; exec "{built / "blocks"}" heap']
    found = trace.capture(command, tmp_path / "t", pools=True)
    assert (found.status, len(found.images)) == (0, 4)
    pages: dict[int, set[int]] = {0: set(), 1: set(), 2: set(), 3: set()}
    for batch in trace.Trace(tmp_path / "t").runs():
        for asid in np.unique(batch.asid).tolist():
            own = batch.page[(batch.asid == asid) & (batch.page >= FIRST) & (batch.page < LAST)]
            pages[asid] |= set(own.tolist())
    executed = [pages[number] for number, image in enumerate(found.images) if image["command"][-1] == "heap"]
    assert len(executed) == 2
    assert executed[0] == executed[1]
    assert len(executed[0]) > 1000


def test_a_placement_that_meets_no_page_is_refused(built: Path, tmp_path: Path) -> None:
    """Before, it silently gave the misses of base pages."""
    trace.capture([str(built / "blocks"), "heap"], tmp_path / "without", full=True)
    with pytest.raises(BadInputError, match=r"meets no page.*for heap.*0x660000000000-0x660000200000.*trace --pools"):
        tlb(tmp_path / "without", "broadwell", placement_of_pages("heap=0-2M:2M"))
    trace.capture([str(built / "blocks"), "heap"], tmp_path / "with", full=True, pools=True)
    with pytest.raises(
        BadInputError, match=r"meets no page.*for heap.*0x6600c0000000.*\(heap\).*name offsets in there"
    ):
        tlb(tmp_path / "with", "broadwell", placement_of_pages("heap=3G-4G:2M"))
    with pytest.raises(BadInputError, match=r"meets no page.*for arenas"):
        tlb(tmp_path / "with", "broadwell", placement_of_pages("arenas=4K"))
    (tmp_path / "aligned.toml").write_text('name="a"\n' + RULE.format(memory="heap"))
    runs = tlb(
        tmp_path / "with", "broadwell", [placement_of_pages("heap=0-2M:2M"), placement(tmp_path / "aligned.toml")]
    )
    huge, small = runs.executions["m"].to_list()
    assert huge < small


def test_what_placements_meet_is_read_once_of_a_file(
    built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regression: the whole trace was read before every simulation. A file that changed is read again."""
    path, read = tmp_path / "t", []
    really = trace.Trace

    def counted(name: str) -> trace.Trace:
        read.append(name)
        return really(name)

    monkeypatch.setattr("pagelab.trace.Trace", counted)
    trace.capture([str(built / "blocks"), "heap"], path, full=True, pools=True)
    for _ in range(3):
        tlb(path, "broadwell", placement_of_pages("heap=0-2M:2M"))
    assert read == [str(path)]
    trace.capture([str(built / "blocks"), "heap"], path, full=True, force=True)
    with pytest.raises(BadInputError, match="meets no page"):
        tlb(path, "broadwell", placement_of_pages("heap=0-2M:2M"))
    assert len(read) == 2


@pytest.mark.parametrize("way", ["array", "batches"])
def test_a_placement_that_meets_nothing_of_an_array_is_refused(way: str) -> None:
    addresses = np.arange(1000, dtype=np.uint64) * np.uint64(4096) + np.uint64(0x7F0000000000)
    with pytest.raises(BadInputError, match=r"meets no page.*0x7f0000000000-0x7f0000400000"):
        tlb(addresses if way == "array" else [addresses], "broadwell", placement_of_pages("heap=2M"))
    if way == "array":
        with pytest.raises(BadInputError, match="meets no page"):
            cache(addresses, "broadwell", placement_of_pages("heap=2M"))


def test_the_trace_of_a_window_is_the_window(tmp_path: Path) -> None:
    """gups updates in its window and nothing else: a load and a store an update; before and after are left out."""
    counts = {}
    for updates in (100_000, 300_000):
        command = [str(paths.workload()), "gups", "--bytes", "8M", "--updates", str(updates)]
        found = trace.capture(command, tmp_path / "t", marker=True, full=True, force=True)
        assert (found.status, len(found.notes)) == (0, 0)
        assert found.kinds is not None
        counts[updates] = found.kinds
    for kind in ("load", "store"):
        assert counts[300_000][kind] - counts[100_000][kind] == 200_000
        # What pagelab_begin and pagelab_end do themselves: some 650 loads and 1000 stores.
        assert 0 <= counts[100_000][kind] - 100_000 < 1500


WINDOWS = """
#include <pagelab.h>
#include <pthread.h>
#include <sys/mman.h>
static char *arena = (char *)0x10000000000;
static void store(int page) { *(volatile char *)(arena + page * 4096L) = 1; }
static void *other(void *unused) { pagelab_begin("other"); store(3); pagelab_end(); store(4); return unused; }
int main(void)
{
    mmap(arena, 8 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    pthread_t thread;
    store(0);
    pagelab_begin("outer");
    store(1);
    pagelab_begin("inner"); store(2); pagelab_end();
    pthread_create(&thread, 0, other, 0); pthread_join(thread, 0);
    store(5);
    pagelab_end();
    store(6);
    pagelab_end();
    pagelab_begin("again"); store(7); pagelab_end();
}
"""


def test_windows_inside_windows_and_of_other_threads_are_one_part(tmp_path: Path) -> None:
    library = paths.library()
    subprocess.run(
        [
            "cc",
            f"-I{paths.include()}",
            "-pthread",
            "-o",
            tmp_path / "windows",
            "-x",
            "c",
            "-",
            "-x",
            "none",
            library,
            f"-Wl,-rpath,{library.parent}",
        ],
        input=WINDOWS.encode(),
        check=True,
    )
    arena = [(0x10000000000, 0x10000000000 + 8 * 4096)]
    trace.capture([str(tmp_path / "windows")], tmp_path / "t", marker=True, ranges=arena)
    pages = [page - 0x10000000 for batch in trace.Trace(tmp_path / "t").runs() for page in batch.page.tolist()]
    assert pages == [1, 2, 3, 4, 5, 7]
