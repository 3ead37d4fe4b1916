"""Processes of a run that hide, hold on or shout: time-outs and signals still end it, and nothing outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from harness.launching import Runner
from pagelab import paths

PYTHON = "/usr/bin/python3"

NAMELESS = r"""
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None)
child = os.fork()
if child == 0:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.setsid()
libc.prctl(15, b"\xff\xfe) Z 1 1", 0, 0, 0)
open(sys.argv[1], "a").write(f"{os.getpid()}\n")
if child == 0 or sys.argv[2] == "stays":
    time.sleep(300)
"""


def is_gone(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return text.rpartition(b")")[2].split()[0] in (b"Z", b"X")


@pytest.mark.parametrize("program", ["stays", "ends"])
def test_a_name_that_is_no_text_hides_no_process(run_under: Runner, tmp_path: Path, program: str) -> None:
    pids = tmp_path / "pids"
    begin = time.monotonic()
    run = run_under("", [PYTHON, "-c", NAMELESS, str(pids), program], preload="never", timeout_s=2.0)
    assert time.monotonic() - begin < 9, run.story()
    assert run.the_record.outcome.status == ("timed-out" if program == "stays" else "ok"), run.story()
    left = [int(line) for line in pids.read_text().split()]
    assert len(left) == 2
    try:
        assert all(is_gone(pid) for pid in left), run.story()
    finally:
        for pid in left:
            if not is_gone(pid):
                os.kill(pid, signal.SIGKILL)


CHAIN = r"""
#define _GNU_SOURCE
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
/* Each process lives only as long as it takes to make the next one, in a session of its own. */
int main(int argc, char **argv) {
    struct timespec now, end;
    volatile unsigned long *count = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    (void)argc;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += atoi(argv[1]);
    signal(SIGTERM, SIG_IGN);
    for (;;) {
        pid_t child = fork();
        if (child > 0) _exit(0);
        if (child < 0) continue;
        setsid();
        ++*count;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= end.tv_sec) _exit(1);
    }
}
"""


def compiled(source: str, place: Path, *options: str) -> Path:
    (place / "program.c").write_text(source)
    program = place / "program"
    subprocess.run(["cc", "-O1", *options, "-o", str(program), str(place / "program.c")], check=True)
    return program


LEADERLESS = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
/* Its first thread ends and another goes on: /proc shows a process that has ended. */
static void *stay(void *unused) {
    for (;;) sleep(100);
    return unused;
}
int main(int argc, char **argv) {
    pthread_t thread;
    pid_t child = strcmp(argv[argc - 1], "ends") == 0 ? fork() : 0;
    if (child > 0) {
        sleep(1);
        return 0;
    }
    signal(SIGTERM, SIG_IGN);
    setsid();
    FILE *file = fopen(argv[1], "w");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    pthread_create(&thread, NULL, stay, NULL);
    syscall(SYS_exit, 0);
}
"""


@pytest.mark.parametrize("program", ["stays", "ends"])
def test_a_process_whose_first_thread_has_ended_is_ended(run_under: Runner, tmp_path: Path, program: str) -> None:
    leaderless = compiled(LEADERLESS, tmp_path, "-pthread")
    pids = tmp_path / "pids"
    begin = time.monotonic()
    run = run_under("", [str(leaderless), str(pids), program], preload="never", timeout_s=3.0)
    assert time.monotonic() - begin < 9, run.story()
    assert run.the_record.outcome.status == ("timed-out" if program == "stays" else "ok"), run.story()
    pid = int(pids.read_text())
    try:
        assert not Path(f"/proc/{pid}").exists(), run.story()
    finally:
        if Path(f"/proc/{pid}").exists():
            os.kill(pid, signal.SIGKILL)


def test_a_chain_of_short_lived_processes_is_ended(run_under: Runner, tmp_path: Path) -> None:
    program = compiled(CHAIN, tmp_path).rename(tmp_path / f"chain-{os.getpid()}")
    begin = time.monotonic()
    run = run_under("", [str(program), "25"], preload="never", timeout_s=5.0)
    took = time.monotonic() - begin
    left = subprocess.run(["pgrep", "-x", program.name], capture_output=True, text=True, check=False).stdout.split()
    assert not left, run.story()
    assert took < 12, run.story()


OUTPUTS = {
    "a hole of terabytes": "import os, time\nprint('work took 3', flush=True)\nos.truncate(1, 1 << 42)\ntime.sleep(60)",
    "more than anybody copies": "print('work took 3', flush=True)\nwhile True: print('x' * 65536)",
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_without_an_end_delays_no_time_out(run_under: Runner, what: str) -> None:
    run_under.prefix = ("bash", "-c", 'set -o pipefail; ulimit -f 500000; "$@" | wc -c >&2', "bash")
    begin = time.monotonic()
    run = run_under(
        "",
        [PYTHON, "-c", OUTPUTS[what]],
        preload="never",
        timeout_s=2.0,
        stdout="inherit",
        measurements={"fd": None, "regex": r"(?P<name>\w+) took (?P<value>\d+)"},
    )
    assert time.monotonic() - begin < 30, run.story()
    assert [one.value for one in run.the_record.measurements][:1] == [3.0], run.story()
    copied = int(run.launcher_stderr.split()[-1])
    assert copied == 12 if what.startswith("a hole") else copied > 1 << 20, run.story()


@pytest.mark.parametrize("stream", ["stdin", "stdout", "stderr"])
def test_a_fifo_in_the_place_of_a_stream_delays_no_signal_and_no_time_out(tmp_path: Path, stream: str) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for timeout_s in (2.0, None):
        request = {
            "schema": "pagelab.request/1",
            "argv": ["true"],
            "preload": "never",
            "timeout_s": timeout_s,
            "record": str(tmp_path / "record.json"),
            "stdin": "null",
            "stdout": "null",
            "stderr": "null",
            stream: str(fifo),
        }
        source = tmp_path / "request.json"
        source.write_text(json.dumps(request))
        launcher = subprocess.Popen([str(paths.launcher()), str(source)], stderr=subprocess.PIPE, text=True)
        try:
            if timeout_s is None:
                time.sleep(0.5)
                launcher.terminate()
            _, told = launcher.communicate(timeout=10)
        finally:
            launcher.kill()
        assert ("SIGTERM" if timeout_s is None else "time-out") in told, told
        assert "streams were open" in told, told
        assert launcher.returncode not in (0, -signal.SIGKILL)
