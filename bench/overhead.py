"""CPU time of real work with the library loaded and all axes left to the kernel, against the library not loaded."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pagelab import paths
from pagelab.record import Record
from pagelab.runner import RunRequest, run

from .sample import Result, compare, interleave
from .tools import KERNEL, Bench, need

Preload = Literal["always", "never"]
GOAL = 1.01
SQL = Path(__file__).parent.parent / "tests" / "data" / "programs" / "database.sql"


def measure(bench: Bench) -> list[Result]:
    programs: dict[str, Callable[[Bench, Preload], Record]] = {
        "malloc-storm": _malloc_storm,
        "sqlite3": _sqlite,
        "redis-server": _redis,
    }
    return [_measured(bench, name, program) for name, program in programs.items()]


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


def _request(argv: list[str], preload: Preload, cwd: Path, stdin: str = "null") -> RunRequest:
    return RunRequest(
        argv=argv, policy_toml=KERNEL, preload=preload, cwd=str(cwd), stdin=stdin, stdout="null", timeout_s=300
    )


def _malloc_storm(bench: Bench, preload: Preload) -> Record:
    argv = [str(paths.workload()), "malloc-storm", "--bytes", "64M", "--operations", "1500000"]
    return run(_request(argv, preload, bench.scratch))


def _sqlite(bench: Bench, preload: Preload) -> Record:
    return run(_request([need("sqlite3"), "-batch", ":memory:"], preload, bench.scratch, stdin=str(SQL)))


def _redis(bench: Bench, preload: Preload) -> Record:
    """The server is what is measured; the load comes from outside."""
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
