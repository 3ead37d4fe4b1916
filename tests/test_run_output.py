"""Output that ``pagelab run --measure-regex`` reads and passes on: all of it arrives, or the run says what did not."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from harness.file_systems import small_file_system

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounts a tmpfs; run: sudo make test")
RUN = [sys.executable, "-m", "pagelab", "run", "-q"]
SEARCH = ["--measure-regex", r"^v=(?P<value>\d+)$"]


def drained(descriptor: int, patience_s: float = 60.0) -> bytes:
    """All that comes out of a pipe until its last writer closes it."""
    found, end = b"", time.monotonic() + patience_s
    while time.monotonic() < end and select.select([descriptor], [], [], 1.0) is not None:
        part = os.read(descriptor, 1 << 16)
        if not part:
            return found
        found += part
    raise AssertionError(f"still open after {len(found)} bytes")


@pytest.mark.parametrize("propagate", [[], ["--propagate"]])
def test_output_that_cannot_be_written_fails_the_run(propagate: list[str], tmp_path: Path) -> None:
    """Regression: if standard output could not be written, it was lost without a word, and the run was ok."""
    with Path("/dev/full").open("w") as full:
        arguments = [*propagate, "-o", str(tmp_path / "record.json"), *SEARCH, "--", "echo", "v=7"]
        done = subprocess.run([*RUN, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    (warning,) = [one for one in record["warnings"] if one["kind"] == "output-lost"]
    assert (warning["severity"], warning["data"]["bytes"]) == ("serious", 4)
    assert "No space left on device (ENOSPC)" in warning["message"]
    assert record["outcome"]["status"] == "failed"
    assert [one["value"] for one in record["measurements"]] == [7.0]


@pytest.mark.parametrize("kind", ["pipe", "pipe that does not wait", "socket"])
def test_a_slow_reader_gets_all_of_it(kind: str) -> None:
    """Regression: of a pipe that does not wait only the first 64 KiB arrived, and the rest was lost without a word."""
    if kind == "socket":
        import socket

        ours, theirs = socket.socketpair()
        reading, writing = ours.detach(), theirs.detach()
    else:
        reading, writing = os.pipe()
        os.set_blocking(writing, kind == "pipe")
    run = subprocess.Popen([*RUN, *SEARCH, "--", "seq", "60000"], stdout=writing)
    time.sleep(1.0)
    blocking = os.get_blocking(writing)
    os.close(writing)
    assert drained(reading) == b"".join(b"%d\n" % number for number in range(1, 60001))
    os.close(reading)
    assert run.wait(60) == 0
    assert blocking == (kind != "pipe that does not wait"), "the pipe's other holders use it as before"


def test_a_reader_that_reads_nothing_does_not_stop_the_timeout(tmp_path: Path) -> None:
    """Regression: while the launcher waited for a reader, neither time-out nor signals had any effect."""
    reading, writing = os.pipe()
    pid = tmp_path / "pid"
    script = f"echo $$ > {pid}; head -c 300000 /dev/zero | tr '\\0' x; exec sleep 600"
    arguments = ["--timeout", "1", "-o", str(tmp_path / "record.json"), *SEARCH, "--", "sh", "-c", script]
    run = subprocess.Popen([*RUN, *arguments], stdout=writing)
    os.close(writing)
    assert run.wait(60) == 1
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["outcome"]["status"] == "timed-out"
    (lost,) = [one for one in record["warnings"] if one["kind"] == "output-lost"]
    arrived = len(drained(reading))
    assert arrived + lost["data"]["bytes"] == 300_000
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    os.close(reading)


def test_a_signal_ends_the_waiting_for_a_reader() -> None:
    """Regression: the same, for a run without a time-out whose program has ended."""
    reading, writing = os.pipe()
    command = [*RUN, *SEARCH, "--", "sh", "-c", "seq 60000; echo ended >&2"]
    run = subprocess.Popen(command, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert run.stderr is not None
    assert run.stderr.readline() == "ended\n"
    time.sleep(0.5)
    assert run.poll() is None
    run.send_signal(signal.SIGINT)
    assert run.wait(30) != 0
    os.close(reading)
    run.stderr.close()


def test_a_reader_that_ends_early_is_no_failure() -> None:
    done = subprocess.run(
        f"{' '.join(RUN)} --measure-regex '(?P<value>[0-9]+)' -- seq 100000 | head -1; echo ${{PIPESTATUS[0]}}",
        shell=True, executable="/bin/bash", capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.stdout == "1\n0\n", done.stderr


# --- little room ------------------------------------------------------------------------------------------------


def seq(*options: str, numbers: int, limit: int | None = None) -> tuple[bool, dict[str, Any]]:
    """A run of seq(1): whether all of its output arrived, and its record."""
    first = (lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None
    reading, writing = os.pipe()
    command = [*RUN, "--json", "--stdout", "inherit", *options, *SEARCH, "--", "seq", str(numbers)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writing, preexec_fn=first) as run:
        os.close(writing)
        assert run.stdout is not None
        found = drained(reading)
        record = json.loads(run.stdout.read())
    os.close(reading)
    return found == b"".join(b"%d\n" % number for number in range(1, numbers + 1)), record


def of_room(record: dict[str, Any]) -> str:
    """What the record says about the way of standard output."""
    found = [one for one in record["warnings"] if one["data"].get("resource") == "room for standard output"]
    (warning,) = found
    assert (warning["kind"], warning["severity"]) == ("room-scarce", "info")
    return str(warning["message"])


@AS_ROOT
def test_all_output_arrives_where_its_file_would_have_no_room(tmp_path: Path) -> None:
    """Regression: in a small run directory (Docker's /dev/shm) output was cut without a word, and the run was ok."""
    with small_file_system(tmp_path / "small", "4m") as small:
        all_of_it, record = seq("--run-dir", str(small), numbers=1_000_000)
    assert all_of_it, record
    assert record["outcome"]["status"] == "ok"
    assert " free; run with another place that has 1024 MiB: --run-dir DIR" in of_room(record)


def test_a_limit_on_file_size_is_no_limit_on_output() -> None:
    """Regression: output above `ulimit -f` ended the program (SIGXFSZ), although it went to a pipe."""
    all_of_it, record = seq(numbers=100_000, limit=100 << 10)
    assert all_of_it, record
    assert record["outcome"]["status"] == "ok"
    assert of_room(record).endswith("run: ulimit -f unlimited")


def test_a_limit_that_no_file_fits_in_is_named() -> None:
    """Regression: it proposed another place, and there is none."""
    done = subprocess.run(
        [*RUN, "--", "true"], capture_output=True, text=True, check=False, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)),
    )  # fmt: skip
    assert done.returncode == 3, done
    assert done.stderr.strip().endswith("File too large (EFBIG); run: ulimit -f unlimited"), done


@AS_ROOT
@pytest.mark.parametrize("to", ["1", "$PAGELAB_MEASURE_FD"])
def test_output_that_had_no_room_is_told(to: str, tmp_path: Path) -> None:
    """Regression: a run whose program could not write all of its output or measurements was ok, without a word."""
    with small_file_system(tmp_path / "small", "1100m") as small:
        script = f"mount -o remount,size=1m {small}; seq -f 'v %.0f' 400000 2>&1 >&{to}; true"
        options = ["-o", str(tmp_path / "record.json"), "--run-dir", str(small), "--no-preload"]
        options += SEARCH if to == "1" else []
        subprocess.run([*RUN, *options, "--", "sh", "-c", script], stdout=subprocess.DEVNULL, check=False, timeout=60)
    record = json.loads((tmp_path / "record.json").read_text())
    kind = "output-lost" if to == "1" else "measurement-unparsed"
    told = [one["message"] for one in record["warnings"] if (one["kind"], one["severity"]) == (kind, "serious")]
    assert len(told) == 1, record["warnings"]
    assert "the run directory " in told[0]
    assert "run with another place that has more room: --run-dir DIR" in told[0]
    assert record["outcome"]["status"] == "ok", "the program itself says so"


PRINTER = """
import sys, time
for second in range(12):
    for line in range(4):
        sys.stdout.write("x" * 65535 + "\\n")
    print(f"v={second}", flush=True)
    time.sleep(0.4)
"""


@AS_ROOT
@pytest.mark.parametrize("stdout", ["inherit", "null"])
def test_output_that_has_arrived_takes_no_space(stdout: str, tmp_path: Path) -> None:
    """Regression: all captured output stayed in the run directory, and a program that printed for long had its writes
    refused (ENOSPC) when that was full."""
    with small_file_system(tmp_path / "small", "1100m") as small:
        arguments = ["-o", str(tmp_path / "record.json"), "--stdout", stdout, "--run-dir", str(small), *SEARCH]
        # With less room in the beginning it would be a pipe.
        script = f'mount -o remount,size=2560k {small} && exec "$@"'
        program = ["sh", "-c", script, "sh", sys.executable, "-c", PRINTER]
        command = [*RUN, "--no-preload", *arguments, "--", *program]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert [one["value"] for one in record["measurements"]] == [float(second) for second in range(12)]
    if stdout == "inherit":
        assert len(done.stdout) == 12 * 4 * 65536 + sum(len(f"v={second}\n") for second in range(12))
