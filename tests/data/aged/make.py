"""Aged states of a Linux machine, as data: what `/proc/buddyinfo` shows, and how a fresh process lies in memory.

``sudo python tests/data/aged/make.py OUT --seed N`` makes one set: the same three workloads, each from memory whose
file cache was dropped and which was compacted, and writes OUT/NAME.json for each. Needs root, cargo, and the
workspace's crates in cargo's cache. It never leaves less than ``SPARE_BYTES`` available and caches at most
``CACHE_BYTES`` of files; these are sparse, so that nothing is read from or written to a disk.

``page-cache``
    Files of lognormal sizes, more than fit, are read whole in random order beside one program that holds what is not
    left for them. Looked at while it holds it.
``compile``
    ``cargo build -j1`` of this workspace with all its dependencies, for four minutes at most.
``forks``
    Short-lived processes of lognormal sizes, up to 64 side by side.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import mmap
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = 4096
GIB = 1 << 30
SPARE_BYTES = 6 * GIB
CACHE_BYTES = 14 * GIB
LEFT_FOR_FILES = 11 * GIB
FILE_MEDIAN_BYTES, FILE_SIGMA, FILE_MOST_BYTES = 64 << 10, 2.0, 1 << 30
FORKS, FORKS_AT_ONCE = 4000, 64
FORK_MEDIAN_PAGES, FORK_SIGMA, FORK_MOST_PAGES = 1000, 1.5, 64_000
COMPILE_SECONDS = 240
FRESH_PAGES, FRESH_PROCESSES, SAMPLES = 16_384, 8, 40


def meminfo(name: str) -> int:
    """Bytes."""
    found = re.search(rf"^{name}:\s+(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found
    return int(found[1]) << 10


def normal_zone() -> dict[str, object]:
    """Free blocks by order, and pages free, managed and in the processors' lists, of zone Normal."""
    line = next(line for line in Path("/proc/buddyinfo").read_text().splitlines() if "Normal" in line)
    zone = Path("/proc/zoneinfo").read_text().split("zone   Normal")[1].split("\nNode")[0]
    figure = {
        name: int(re.findall(rf"\b{name}\s+(\d+)", zone)[0]) for name in ("free", "min", "low", "high", "managed")
    }
    return {
        "free_blocks": [int(count) for count in line.split()[4:]],
        **{f"{name}_pages": count for name, count in figure.items()},
        "processor_list_pages": [int(count) for count in re.findall(r"\bcount:\s+(\d+)", zone)],
    }


def fresh_process() -> dict[int, int]:
    """Runs of consecutive frames behind new anonymous memory, touched in order: length → how many."""
    with mmap.mmap(-1, FRESH_PAGES * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.madvise(mmap.MADV_NOHUGEPAGE)
        for page in range(FRESH_PAGES):
            memory[page * PAGE] = 1
        with Path("/proc/self/maps").open() as maps:
            size = FRESH_PAGES * PAGE
            spans = ([int(end, 16) for end in line.split()[0].split("-")] for line in maps)
            start = next(low for low, high in spans if high - low == size)
        with Path("/proc/self/pagemap").open("rb") as pagemap:
            pagemap.seek(start // PAGE * 8)
            words = memoryview(pagemap.read(FRESH_PAGES * 8)).cast("Q")
    frames = [word & (1 << 55) - 1 for word in words]
    assert all(frames), "pagemap shows no frames: run as root"
    runs, length = Counter[int](), 1
    for before, after in itertools.pairwise(frames):
        if after == before + 1:
            length += 1
        else:
            runs[length] += 1
            length = 1
    runs[length] += 1
    return dict(sorted(runs.items()))


Going = Callable[[], None] | None
"""Goes on with the workload for a moment, where its state is one that lasts only while it runs."""


def snapshot(what: str, seed: int, going: Going) -> dict[str, object]:
    """The zone first, fresh processes last, since they change it; both many times where the work goes on."""
    zones = [normal_zone()]
    for _ in range(SAMPLES if going else 0):
        if going:
            going()
        zones.append(normal_zone())
    cached, available = meminfo("Cached"), meminfo("MemAvailable")
    runs = []
    for _ in range(FRESH_PROCESSES):
        child = subprocess.run([sys.executable, __file__, "--fresh"], check=True, capture_output=True, text=True)
        runs.append(json.loads(child.stdout))
        if going:
            going()
    return {
        "state": what,
        "seed": seed,
        "kernel": platform.release(),
        "processors": os.cpu_count(),
        "memory_bytes": meminfo("MemTotal"),
        "cached_bytes": cached,
        "available_bytes": available,
        "zones": zones,
        "fresh_pages": FRESH_PAGES,
        "fresh_runs": runs,
    }


def start_over() -> None:
    """As near to a machine that has just booted as a running one comes."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3")
    Path("/proc/sys/vm/compact_memory").write_text("1")
    time.sleep(2)


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    """A process that does `work`, waits, and is ended."""
    ready, told = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        work()
        os.write(told, b".")
        signal.pause()
        os._exit(0)
    os.close(told)
    assert os.read(ready, 1) == b".", "a child of the workload died"
    os.close(ready)
    try:
        yield pid
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def touch(pages: int) -> None:
    memory = mmap.mmap(-1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for page in range(pages):
        memory[page * PAGE] = 1
    globals()["_held"] = memory


@contextmanager
def page_cache(draw: random.Random) -> Iterator[Going]:
    held = meminfo("MemAvailable") - LEFT_FOR_FILES
    if held < 0 or LEFT_FOR_FILES < SPARE_BYTES:
        raise SystemExit(f"page-cache: {LEFT_FOR_FILES >> 30} GiB are not available")
    with tempfile.TemporaryDirectory(prefix="aged-") as directory, child(lambda: touch(held // PAGE)):
        files, total = [], 0
        while total < CACHE_BYTES:
            size = min(int(FILE_MEDIAN_BYTES * draw.lognormvariate(0, FILE_SIGMA)) + 1, FILE_MOST_BYTES)
            files.append(Path(directory) / str(len(files)))
            with files[-1].open("wb") as file:
                file.truncate(size)
            total += size
        buffer = bytearray(128 << 10)

        def read(size: int) -> None:
            while size > 0:
                with draw.choice(files).open("rb", buffering=0) as file:
                    while count := file.readinto(buffer):
                        size -= count
                if meminfo("MemAvailable") < SPARE_BYTES:
                    raise SystemExit("page-cache: others need the memory; try again later")

        read(2 * CACHE_BYTES)
        yield lambda: read(GIB // 4)


@contextmanager
def compilation(_: random.Random) -> Iterator[Going]:
    with tempfile.TemporaryDirectory(prefix="aged-") as directory:
        command = ["nice", "-n5", "cargo", "build", "-j1", "--offline", "--locked", "--target-dir", directory]
        output = subprocess.DEVNULL
        with subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=output, start_new_session=True) as cargo:
            with contextlib.suppress(subprocess.TimeoutExpired):
                cargo.wait(COMPILE_SECONDS)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(cargo.pid, signal.SIGKILL)
        time.sleep(1)
        yield None


@contextmanager
def forks(draw: random.Random) -> Iterator[Going]:
    live: list[int] = []
    for _ in range(FORKS):
        pages = min(int(FORK_MEDIAN_PAGES * draw.lognormvariate(0, FORK_SIGMA)) + 1, FORK_MOST_PAGES)
        naps = draw.expovariate(20)
        pid = os.fork()
        if pid == 0:
            touch(pages)
            time.sleep(naps)
            os._exit(0)
        live.append(pid)
        if len(live) >= FORKS_AT_ONCE:
            os.waitpid(live.pop(draw.randrange(len(live))), 0)
    for pid in live:
        os.waitpid(pid, 0)
    yield None


def shown(found: dict[str, object]) -> str:
    """JSON with a line for each sample."""

    def value(one: object) -> str:
        return (
            "[\n" + ",\n".join(f"  {json.dumps(each)}" for each in one) + "\n ]"
            if isinstance(one, list)
            else json.dumps(one)
        )

    return "{\n" + ",\n".join(f" {json.dumps(name)}: {value(one)}" for name, one in found.items()) + "\n}\n"


STATES = {"page-cache": page_cache, "compile": compilation, "forks": forks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", choices=STATES, action="append")
    parser.add_argument("--fresh", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.fresh:
        print(json.dumps(fresh_process()))
        return
    if arguments.out is None:
        parser.error("OUT is missing")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.only or STATES:
        draw = random.Random(f"{arguments.seed} {name}")
        start_over()
        began = time.monotonic()
        with STATES[name](draw) as going:
            found = snapshot(name, arguments.seed, going)
        (arguments.out / f"{name}.json").write_text(shown(found))
        print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
    start_over()


if __name__ == "__main__":
    main()
