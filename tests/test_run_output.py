"""Output that ``pagelab run --measure-regex`` reads and passes on: all of it arrives, or the run says what did not."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

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
    with small_file_system(tmp_path / "small", "2560k") as small:
        arguments = ["-o", str(tmp_path / "record.json"), "--stdout", stdout, "--run-dir", str(small), *SEARCH]
        command = [*RUN, "--no-preload", *arguments, "--", sys.executable, "-c", PRINTER]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "record.json").read_text())
    assert [one["value"] for one in record["measurements"]] == [float(second) for second in range(12)]
    if stdout == "inherit":
        assert len(done.stdout) == 12 * 4 * 65536 + sum(len(f"v={second}\n") for second in range(12))
