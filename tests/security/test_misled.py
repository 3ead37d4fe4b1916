"""Who may name things (files, sockets, directories, modules) misleads nobody with more rights."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from harness.launching import Runner, open_to_all
from pagelab import paths, whole_file
from pagelab.placement import procfs

PYTHON = "/usr/bin/python3"
NOBODY = 65534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root runs programs for others; run: sudo make test")
USERFAULTFD = pytest.mark.skipif(not Path("/dev/userfaultfd").exists(), reason="no /dev/userfaultfd; needs Linux 6.1")

SQUATTER = r"""
import os, socket, sys
taken, seen = {}, set()
while True:
    for name in os.listdir(sys.argv[1]):
        if name not in seen:
            seen.add(name)
            listener = socket.socket(socket.AF_UNIX)
            try:
                listener.bind("\0" + name + "/frames.sock")
            except OSError:
                continue
            taken[name] = listener
            print(name, flush=True)
"""


@AS_ROOT
@USERFAULTFD
def test_nobody_is_first_at_a_runs_address(run_under: Runner, tmp_path: Path) -> None:
    """They would hand descriptors of their choice to processes of the run that have changed their user."""
    open_to_all(tmp_path)
    roots = tmp_path / "roots"
    roots.mkdir()
    squatter = subprocess.Popen(
        [PYTHON, "-c", SQUATTER, str(roots)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        for _ in range(20):
            run_under('frames = "page-coloring"', ["true"], user="nobody", run_dir_root=str(roots)).succeeded()
    finally:
        squatter.kill()
        told, _ = squatter.communicate()
    assert told == ""


LAYS_ASIDE = r"""
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>
/* Set-user-ID root: has something at a known address, and acts as its caller from then on. */
int main(void) {
    int kind = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    char *p = mmap((void *)0x100000000000, 4096, PROT_READ | PROT_WRITE, kind, -1, 0);
    *p = 1;
    if (setresuid(getuid(), getuid(), getuid()) || setresgid(getgid(), getgid(), getgid())) return 1;
    sleep(3);
    return 0;
}
"""

ASKS_AND_EXECUTES = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
/* Asks the launcher for its own page frames many times, and executes another program before it is answered. */
static int ask(const char *name) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    strcpy(at.sun_path + 1, name);
    if (connect(s, (void *)&at, (socklen_t)(sizeof(sa_family_t) + 1 + strlen(name))) != 0) _exit(9);
    return s;
}
static void look(int s, int number) {
    int answer = -1, fds[2];
    union { char bytes[CMSG_SPACE(sizeof fds)]; struct cmsghdr align; } room;
    struct iovec part = {&answer, sizeof answer};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &room, .msg_controllen = sizeof room};
    uint64_t entry = 0;
    if (recvmsg(s, &message, 0) != sizeof answer) return;
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header != NULL) {
        memcpy(fds, CMSG_DATA(header), sizeof fds);
        usleep(100000);
        if (pread(fds[0], &entry, 8, 0x100000000000 / 4096 * 8) < 0) entry = 0;
    }
    printf("%d %d %d %d\n", number, answer, header != NULL, (entry & ((1ull << 55) - 1)) != 0);
}
int main(int argc, char **argv) {
    enum { MANY = 100 };
    int sockets[MANY];
    pid_t tried = fork();
    (void)argc;
    if (tried == 0) {
        for (int i = 0; i < MANY; i++) sockets[i] = ask(argv[1]);
        if (fork() != 0) {
            execl(argv[2], argv[2], NULL);
            _exit(8);
        }
        setvbuf(stdout, NULL, _IONBF, 0);
        for (int i = MANY - 20; i < MANY; i++) look(sockets[i], i);
        _exit(0);
    }
    waitpid(tried, NULL, 0);
    sleep(1);
    return 0;
}
"""


def compiled(source: str, program: Path, *options: str) -> Path:
    program.with_suffix(".c").write_text(source)
    subprocess.run(["cc", "-O1", *options, "-o", str(program), str(program.with_suffix(".c"))], check=True)
    return program


@AS_ROOT
@USERFAULTFD
def test_frames_of_a_program_with_more_rights_are_nobodys_business(run_under: Runner, tmp_path: Path) -> None:
    """A process asks, and executes a set-user-ID program that acts as its caller again: its pages are root's still."""
    open_to_all(tmp_path)
    more = compiled(LAYS_ASIDE, tmp_path / "more", "-static")
    more.chmod(0o4755)
    asker = compiled(ASKS_AND_EXECUTES, tmp_path / "asker", "-static")
    script = f'{asker} "$(basename "$(dirname "$PAGELAB_PLAN")")/frames.sock" {more}'
    run = run_under('frames = "page-coloring"', ["sh", "-c", script], user="nobody").succeeded()
    answers = [tuple(map(int, line.split()[1:])) for line in run.stdout.splitlines()]
    assert len(answers) == 20, run.story()
    assert all(not shown for *_, shown in answers), run.story()
    # Answers that came before the exec are of memory that is gone; the others are refusals.
    assert (1, 0, 0) in answers, run.story()


MAPS = r"""
import mmap, sys, time
file = open(sys.argv[1], "rb")
mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
print(flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("separator", ["\r", "\x0c", "\x1c", "\u0085", "\u2028"])
def test_a_file_that_is_mapped_is_one_line(tmp_path: Path, separator: str) -> None:
    forged = f"{separator}7f0000000000-7f0000001000 rw-p 00000000 00:00 0 [heap]{separator}Rss: 4 kB"
    path = tmp_path / f"a{forged}"
    path.write_bytes(bytes(4096))
    with subprocess.Popen([PYTHON, "-c", MAPS, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            found = procfs.mappings(process.pid)
        finally:
            process.kill()
    assert all(vma.start != 0x7F0000000000 for vma in found)
    assert [vma.size for vma in found if "[heap]" in vma.path and vma.path.startswith("/")] == [4096]


@AS_ROOT
def test_a_link_under_a_name_that_can_be_guessed_is_not_followed(tmp_path: Path) -> None:
    """Where the kernel does not protect links in /tmp (fs.protected_symlinks)."""
    precious = tmp_path / "precious"
    precious.write_text("root's own\n")
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o1777)
    # Numbers of processes from now on.
    for number in range(os.getpid(), os.getpid() + 5000):
        (place / f".map.json.{number}").symlink_to(precious)
    with subprocess.Popen(["sleep", "60"]) as process:
        arguments = ["map", "--save", str(place / "map.json"), str(process.pid)]
        done = subprocess.run([sys.executable, "-m", "pagelab", *arguments], capture_output=True, check=False, cwd="/")
        process.kill()
    assert (place / "map.json").exists(), done.stderr
    assert precious.read_text() == "root's own\n"
    (place / "old").symlink_to(precious)
    whole_file.put(place / "old", "new", mode=0o640)
    assert precious.read_text() == "root's own\n"
    assert ((place / "old").read_text(), (place / "old").stat().st_mode & 0o7777) == ("new", 0o640)


def test_modules_do_not_come_from_the_directory_that_a_study_is_run_in(tmp_path: Path) -> None:
    """Somebody else's directory, for instance, in which root runs a study of the bundled benchmarks."""
    from pagelab.study.bundled import bundle
    from pagelab.study.spec import RawStudy

    (tmp_path / "pagelab").mkdir()
    (tmp_path / "pagelab" / "__init__.py").write_text("open('run', 'w')")
    (tmp_path / "json.py").write_text("open('run', 'w')")
    raw = RawStudy.model_validate({"name": "x", "benchmarks": ["gzip"], "policy": [{"name": "kernel"}]})
    steps = bundle(raw).setup(tmp_path / "out")
    assert steps
    for step in steps:
        subprocess.run([*step.argv, "--help"], cwd=tmp_path, check=False, capture_output=True, timeout=60)
    assert not (tmp_path / "run").exists()


def test_what_lies_in_the_place_of_the_machines_lock_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tempfile

    from pagelab.errors import MachineError
    from pagelab.study import on_host

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names = []
    with on_host._alone():
        names += [path.name for path in tmp_path.iterdir()]
    on_host._lock.cache_clear()
    (name,) = names
    path = tmp_path / name
    for make in (os.mkfifo, os.mkdir, lambda at: at.symlink_to("/etc/hostname")):
        path.unlink()
        make(path)
        answer: list[object] = []

        def work(answer: list[object] = answer) -> None:
            try:
                on_host._lock()
            except MachineError as error:
                answer.append(error)

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        worker.join(5)
        assert answer, "opening it waits"
        assert "run: ls -l" in str(answer[0])
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
            path.touch()


def test_who_waits_for_the_machine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pagelab.study import on_host

    monkeypatch.setattr(on_host, "_QUIET_S", 0.2)
    path = tmp_path / "lock"
    with path.open("w") as other, path.open() as own:
        fcntl.flock(other, fcntl.LOCK_EX)
        waiting = threading.Thread(target=on_host._wait_for, args=(own.fileno(),))
        waiting.start()
        time.sleep(1)
        fcntl.flock(other, fcntl.LOCK_UN)
        waiting.join(10)
        assert not waiting.is_alive()
    told = capsys.readouterr().err
    assert str(path) in told
    assert "lslocks" in told


@AS_ROOT
def test_a_program_that_is_traced_as_root_is_said_to_be(tmp_path: Path) -> None:
    """Unlike `run` and `map`, which run it as the user who called sudo."""
    for caller, is_told in (("65534", True), ("0", False), (None, False)):
        own = {key: value for key, value in os.environ.items() if key != "SUDO_UID"}
        environment = own | ({"SUDO_UID": caller, "SUDO_GID": caller} if caller else {})
        command = [sys.executable, "-m", "pagelab", "trace", "--force", "-o", str(tmp_path / "x.trace"), "--", "true"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120)
        assert ("runs as root" in done.stderr) == is_told, done.stderr


TYPES = r"""
import fcntl, termios
for byte in b"evil\n":
    fcntl.ioctl(1, termios.TIOCSTI, bytes([byte]))
"""

SHELL = r"""
import os, select, subprocess, sys
subprocess.run(sys.argv[1:])
ready, _, _ = select.select([0], [], [], 0.5)
print("a shell would run", os.read(0, 100) if ready else None, flush=True)
"""


@AS_ROOT
@pytest.mark.parametrize("stdin", ["inherit", "null"])
def test_a_program_of_another_user_types_no_commands_for_roots_shell(tmp_path: Path, stdin: str) -> None:
    request = {
        "schema": "pagelab.request/1",
        "argv": [PYTHON, "-c", TYPES],
        "preload": "never",
        "user": "nobody",
        "stdin": stdin,
        "record": str(tmp_path / "record.json"),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(PYTHON, [PYTHON, "-c", SHELL, str(paths.launcher()), str(tmp_path / "request.json")])
    shown = b""
    with os.fdopen(terminal, "rb", buffering=0) as screen, suppress(OSError):
        while part := screen.read(1000):
            shown += part
    os.waitpid(pid, 0)
    assert b"a shell would run None" in shown, shown
    assert b"PermissionError" in shown, shown


@AS_ROOT
def test_keys_of_the_terminal_end_a_program_of_another_user(tmp_path: Path) -> None:
    request = {
        "schema": "pagelab.request/1",
        "argv": ["sh", "-c", "read line; echo read-$line; sleep 60"],
        "preload": "never",
        "user": "nobody",
        "stdin": "inherit",
        "record": str(tmp_path / "record.json"),
    }
    (tmp_path / "request.json").write_text(json.dumps(request))
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(paths.launcher(), [str(paths.launcher()), str(tmp_path / "request.json")])
    with os.fdopen(terminal, "r+b", buffering=0) as screen:
        screen.write(b"word\n")
        shown, begin = b"", time.monotonic()
        with suppress(OSError):
            while part := screen.read(1000):
                shown += part
                if b"read-word" in shown:
                    screen.write(b"\x03")
    os.waitpid(pid, 0)
    assert b"read-word" in shown, shown
    assert time.monotonic() - begin < 20
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["outcome"]["status"] != "ok"


FLOODER = r"""
import glob, os, socket, sys, time
count, deadline = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < deadline:
    for path in glob.glob(sys.argv[1] + "/pagelab-*"):
        caller = socket.socket(socket.AF_UNIX)
        try:
            caller.connect("\0" + os.path.basename(path) + "/frames.sock")
            count += 1
        except OSError:
            pass
        caller.close()
print(count)
"""


@pytest.mark.by_turns(4)
@AS_ROOT
@USERFAULTFD
def test_a_flood_of_requests_by_another_user_stops_no_run_and_no_time_out(run_under: Runner, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    roots = tmp_path / "roots"
    roots.mkdir()
    flooder = subprocess.Popen(
        [PYTHON, "-c", FLOODER, str(roots), "12"],
        user=65533,
        group=65533,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        policy = 'frames = "page-coloring"'
        run = run_under(policy, ["sh", "-c", "true; true"], user="nobody", run_dir_root=str(roots)).succeeded()
        frames = run.root.frames
        assert frames is not None, run.story()
        assert frames.engines_started > 0, run.story()
        begin = time.monotonic()
        run = run_under(policy, ["sleep", "60"], user="nobody", run_dir_root=str(roots), timeout_s=2.0)
        assert run.the_record.outcome.status == "timed-out", run.story()
        assert time.monotonic() - begin < 15, run.story()
    finally:
        told, _ = flooder.communicate()
    assert int(told) > 100


def test_files_of_a_study_and_of_a_report_replace_links_in_their_places(tmp_path: Path) -> None:
    """Whoever may write to their directory can put links there, under names that are known."""
    from pagelab.models.page import written
    from pagelab.study.demo import SPEC, make_inputs
    from pagelab.study.prepare import SPEC_COPY
    from pagelab.study.setting import POLICIES, Setting

    precious = tmp_path / "precious"
    precious.write_text("root's own\n")
    (place := tmp_path / "place").mkdir()
    (place / POLICIES).mkdir()
    (place / ".pagelab-report").write_text("an older one")
    for name in ("report.json", "index.html", f"{POLICIES}/4K.toml", SPEC, f".{SPEC_COPY}.part"):
        (place / name).unlink(missing_ok=True)
        (place / name).symlink_to(precious)
    written(place, "pagelab", [], {"report.json": "{}\n"}, "<p>")
    Setting("4K", 'pages = "4K"\n').table("4K", place)
    make_inputs(place)
    assert precious.read_text() == "root's own\n"
    assert (place / "report.json").read_text() == "{}\n"
    assert not (place / POLICIES / "4K.toml").is_symlink()
