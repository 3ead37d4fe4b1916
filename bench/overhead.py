"""Cost of the library with all axes left to the kernel: CPU time of real work, and start of processes.

Without the machine's noise the same is counted, in instructions and system calls, by ``tests/test_cost.py``.
"""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal

from pagelab import paths
from pagelab.record import Record
from pagelab.runner import RunRequest, run

from .sample import Result, compare, interleave
from .tools import KERNEL, Bench, need

Preload = Literal["always", "never"]
GOAL = 1.01
STARTS: dict[str, tuple[int, int, str, float]] = {
    "fork": (200, 0, "native", 1.1),
    "spawn": (200, 0, "empty library", 1.1),
    "execvp": (100, 200, "native", 1.5),
}
"""Form of ``spawning.c`` to how many times, MiB resident, what it is held against and the goal."""
SQL = Path(__file__).parent.parent / "tests" / "data" / "programs" / "database.sql"


def measure(bench: Bench) -> list[Result]:
    programs: dict[str, Callable[[Bench, Preload], Record]] = {
        "malloc-storm": _malloc_storm,
        "sqlite3": _sqlite,
        "redis-server": _redis,
    }
    results = [_measured(bench, name, program) for name, program in programs.items()]
    return results + [result for form in STARTS for result in _starting(bench, form)]


def _starting(bench: Bench, form: str) -> list[Result]:
    """Against the program alone, and against a library that is loaded and does nothing."""
    times, resident_mib, compared, goal = STARTS[form]
    sides: dict[str, Callable[[], float]] = {
        "native": lambda: _start_us(bench, form, "never", {}),
        "empty library": lambda: _start_us(bench, form, "never", {"LD_PRELOAD": _empty_library(bench)}),
        "without a plan": lambda: _start_us(bench, form, "never", {}, _without_a_plan()),
        "pagelab": lambda: _start_us(bench, form, "always", {}),
    }
    samples = interleave(sides, bench.rounds)
    title = f"{form} ({resident_mib} MiB resident, median of {times})"
    floor = f"floor: {title}: the library loaded, without a plan / empty library"
    return [
        compare(floor, "µs", samples["empty library"], samples["without a plan"]),
    ] + [
        compare(
            f"{title}: preloaded, all axes kernel / {against}",
            "µs",
            samples[against],
            samples["pagelab"],
            goal=goal if against == compared else None,
        )
        for against in ("native", "empty library")
    ]


def _start_us(bench: Bench, form: str, preload: Preload, env: dict[str, str], through: Sequence[str] = ()) -> float:
    times, resident_mib, _, _ = STARTS[form]
    out = bench.scratch / "spawning.ns"
    path = ":".join(f"/nowhere/{i}" for i in range(11))
    argv = [*through, bench.compiled("spawning"), form, str(times), str(resident_mib), "/bin/true", str(out)]
    _cpu_s(run(_request(argv, preload, bench.scratch, {"PATH": path, **env})))
    return int(out.read_text()) / 1e3


def _without_a_plan() -> list[str]:
    """A command that loads the library, which tells each time that it has no plan, and does nothing else."""
    return ["/bin/sh", "-c", 'LD_PRELOAD=$0 exec "$@" 2>/dev/null', str(paths.library())]


def _empty_library(bench: Bench) -> str:
    source = bench.scratch / "empty.c"
    source.write_text("void pagelab_bench_empty(void) {}\n")
    library = bench.scratch / "empty.so"
    if not library.exists():
        subprocess.run([need("cc"), "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    return str(library)


def _measured(bench: Bench, name: str, program: Callable[[Bench, Preload], Record]) -> Result:
    samples = interleave(
        {
            "not preloaded": lambda: _cpu_s(program(bench, "never")),
            "preloaded": lambda: _cpu_s(program(bench, "always")),
        },
        bench.rounds,
    )
    return compare(
        f"CPU time of {name}: preloaded, all axes kernel / not preloaded",
        "s",
        samples["not preloaded"],
        samples["preloaded"],
        goal=GOAL,
    )


def _cpu_s(record: Record) -> float:
    if record.outcome.status != "ok":
        raise SystemExit(f"{' '.join(record.command.argv)}: {record.outcome}")
    return (record.time.user_ns + record.time.system_ns) / 1e9


def _request(
    argv: list[str], preload: Preload, cwd: Path, env: dict[str, str] | None = None, stdin: str = "null"
) -> RunRequest:
    return RunRequest(
        argv=argv,
        policy_toml=KERNEL,
        preload=preload,
        cwd=str(cwd),
        env=env or {},
        stdin=stdin,
        stdout="null",
        timeout_s=300,
    )


def _malloc_storm(bench: Bench, preload: Preload) -> Record:
    argv = [str(paths.workload()), "malloc-storm", "--bytes", "64M", "--operations", "1500000"]
    return run(_request(argv, preload, bench.scratch))


def _sqlite(bench: Bench, preload: Preload) -> Record:
    return run(_request([need("sqlite3"), "-batch", ":memory:"], preload, bench.scratch, stdin=str(SQL)))


def _redis(bench: Bench, preload: Preload) -> Record:
    """The server is measured; the load comes from another process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    argv = [need("redis-server"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    records: list[Record] = []
    server = threading.Thread(target=lambda: records.append(run(_request(argv, preload, bench.scratch))))
    server.start()
    ask = [need("redis-cli"), "-p", port]
    deadline = time.monotonic() + 20
    while subprocess.run([*ask, "ping"], capture_output=True, check=False).returncode != 0:
        if time.monotonic() > deadline:
            raise SystemExit("redis-server did not answer within 20 s")
        time.sleep(0.01)
    load = [
        "-p",
        port,
        "-n",
        "60000",
        "-c",
        "10",
        "-P",
        "4",
        "-d",
        "200",
        "-r",
        "20000",
        "-t",
        "set,get,lpush,mset",
        "-q",
    ]
    subprocess.run([need("redis-benchmark"), *load], capture_output=True, check=True)
    subprocess.run([*ask, "shutdown", "nosave"], capture_output=True, check=False)
    server.join(30)
    if not records:
        raise SystemExit("redis-server did not end")
    return records[0]
