"""The program's user as an attacker: what a process of that user does in and around the run directory gains nothing."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

from harness.launching import Runner, capable, open_to_all, start_launcher
from harness.processes import children_of, wait_until
from pagelab import paths
from pagelab.record import WarningKind

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="root runs programs for others; run: sudo make test")
PYTHON = "/usr/bin/python3"
NOBODY = 65534

PLANTER = r"""
import os, sys
place, precious = sys.argv[1:]
def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass
while True:
    for entry in os.listdir(place):
        for inside in (os.path.join(place, entry), os.path.join(place, entry, "guests")):
            for name in ("plan", "measure", "stdout", "frames.sock"):
                path = os.path.join(inside, name)
                if not os.path.islink(path):
                    attempt(os.unlink, path)
                    attempt(os.symlink, precious, path)
"""
"""The quickest way to have root write to a file, or give it away: links where root is about to make something."""

WRECKER = r"""
import os, socket, sys
place, precious, decoy = sys.argv[1:]
made = 0
def attempt(call, *arguments):
    try:
        call(*arguments)
    except OSError:
        pass
def line(path):
    with open(path, "w") as file:
        file.write("x" * 100_000)
names = ["plan", "frames.sock", "measure", "stdout", "1-0.guest", "2-0.guest", "3-0.guest", "4-0.lost", "guests"]
while True:
    for entry in os.listdir(place):
        run = os.path.join(place, entry)
        if made % 3 == 0:
            attempt(os.rename, run, run + "-away")
            attempt(os.symlink, decoy, run)
            attempt(os.unlink, run)
        for inside in (run, os.path.join(run, "guests")):
            for name in names:
                path = os.path.join(inside, name)
                made += 1
                attempt(os.unlink, path)
                attempt(os.rmdir, path)
                kind = made % 7
                if kind == 0: attempt(os.symlink, precious, path)
                elif kind == 1: attempt(os.mkfifo, path)
                elif kind == 2: attempt(os.mkdir, path); attempt(os.symlink, decoy, path + "/x")
                elif kind == 3: attempt(os.link, precious, path)
                elif kind == 4: attempt(line, path)
                elif kind == 5: attempt(lambda: os.truncate(path, 1 << 40))
                else:
                    try:
                        socket.socket(socket.AF_UNIX).bind(path)
                    except OSError:
                        pass
"""


def racing(run_under: Runner, tmp_path: Path, rounds: int, racer: str) -> None:
    open_to_all(tmp_path)
    roots, precious, decoy = tmp_path / "roots", tmp_path / "precious", tmp_path / "decoy"
    roots.mkdir()
    roots.chmod(0o777)
    precious.write_text("root's own\n")
    precious.chmod(0o644)
    decoy.mkdir()
    (decoy / "kept").touch()
    places = [str(roots), str(precious), str(decoy)][: 2 if racer == PLANTER else 3]
    attacker = subprocess.Popen([PYTHON, "-c", racer, *places], user=NOBODY, group=NOBODY, extra_groups=[], cwd="/")
    outcomes = []
    try:
        for number in range(rounds):
            policy = 'frames = "page-coloring"\n' if number % 2 and Path("/dev/userfaultfd").exists() else ""
            begin = time.monotonic()
            run = run_under(policy, ["/bin/true"], user="nobody", run_dir_root=str(roots), timeout_s=20.0)
            assert time.monotonic() - begin < 60, run.story()
            assert run.launcher_exit in (0, 1, 3), run.story()
            outcomes.append(run.launcher_exit)
            shutil.rmtree(tmp_path / f"run-{run_under.count}")
            assert precious.read_text() == "root's own\n", f"round {number}"
            assert (precious.stat().st_uid, precious.stat().st_mode & 0o777) == (0, 0o644), f"round {number}"
    finally:
        attacker.kill()
        attacker.wait()
    assert [path.name for path in decoy.iterdir()] == ["kept"]
    assert (decoy.stat().st_uid, decoy.stat().st_mode & 0o777) == (0, 0o755)
    assert racer == WRECKER or set(outcomes) == {0}, "links in a directory of root's don't even make a run fail"


@pytest.mark.parametrize("racer", [PLANTER, WRECKER], ids=["links", "everything"])
def test_a_race_for_the_run_directory_gains_nothing(run_under: Runner, tmp_path: Path, racer: str) -> None:
    racing(run_under, tmp_path, 20, racer)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("racer", [PLANTER, WRECKER], ids=["links", "everything"])
def test_a_long_race_for_the_run_directory_gains_nothing(run_under: Runner, tmp_path: Path, racer: str) -> None:
    racing(run_under, tmp_path, 500, racer)


def test_the_program_cannot_write_to_the_run_directory(run_under: Runner) -> None:
    script = """
dir=$(dirname "$PAGELAB_PLAN")
stat -c '%u %a' "$dir" "$dir/guests" "$PAGELAB_PLAN"
touch "$dir/mine" 2>/dev/null && echo touched
rm -f "$PAGELAB_PLAN" 2>/dev/null; test -e "$PAGELAB_PLAN" || echo removed
mv "$dir/guests" "$dir/others" 2>/dev/null && echo moved
(echo x >> "$PAGELAB_PLAN") 2>/dev/null && echo written
true
"""
    run = run_under("", ["sh", "-c", script], user="nobody").succeeded()
    assert run.stdout == f"0 711\n{NOBODY} 700\n0 444\n", run.story()


LEAVINGS = r"""
import os, socket
guests = os.path.join(os.path.dirname(os.environ["PAGELAB_PLAN"]), "guests")
os.chdir(guests)
os.mkfifo("1001-0.guest")
os.symlink("/dev/zero", "1002-0.guest")
os.symlink("/etc/shadow", "1003-0.guest")
os.mkdir("1004-0.guest")
socket.socket(socket.AF_UNIX).bind("1005-0.guest")
open("1006-0.guest", "w").truncate(1 << 42)
open("1007-0.guest", "w").write("short")
own = next(name for name in os.listdir(".") if name.startswith(f"{os.getpid()}-"))
os.link(own, "1008-0.guest")
content = open(own, "rb").read()
open("1009-0.guest", "wb").write(bytes(len(content)))
os.symlink("x" * 1000, "1010-0.lost")
os.symlink("99999999999", "1011-0.lost")
os.mkfifo("1012-0.lost")
os.symlink("27", "1013-0.lost")
open("\x1b]0;title\x07.guest", "w").close()
open("-1--1.guest", "w").close()
deep = "."
for level in range(200):
    os.mkdir("d" * 100)
    os.chdir("d" * 100)
os.chdir(guests)
for number in range(3000):
    open(f"{number + 100000}-0.guest", "w").close()
"""


def test_whatever_lies_among_the_guest_files_neither_blocks_nor_fills_nor_misleads(
    run_under: Runner, tmp_path: Path
) -> None:
    roots = tmp_path / "roots"
    roots.mkdir()
    begin = time.monotonic()
    run = run_under("", [PYTHON, "-c", LEAVINGS], user="nobody", run_dir_root=str(roots)).succeeded()
    assert time.monotonic() - begin < 30, run.story()
    warnings = [w for w in run.the_record.warnings if w.kind == WarningKind.PLACEMENT_UNKNOWN]
    text = "\n".join(warning.message for warning in warnings)
    assert "could not be used" in text, run.story()
    assert "more guest files" in text, run.story()
    assert all(process.pid < 1 << 22 for process in run.the_record.processes), run.story()
    assert len(run.the_record.processes) == 1, "nothing of it became a process of the record"
    assert "\\u001b" not in run.the_record.model_dump_json()
    assert not list(roots.iterdir()), "all of it is gone"


@pytest.mark.parametrize("by", ["root", "file capabilities"])
def test_a_directory_of_roots_that_was_moved_among_the_guest_files_stays(
    run_under: Runner, everyones: Path, by: str
) -> None:
    """Its user may move an own directory with everything in it, but could not empty one of root's therein."""
    roots, own = everyones / "roots", everyones / "own"
    for place in (roots, own):
        place.mkdir()
        os.chown(place, NOBODY, NOBODY)
    (own / "precious").mkdir(0o700)
    (own / "precious" / "kept").touch()
    if by == "file capabilities":
        run_under.launcher = everyones / "launcher"
        shutil.copy(paths.launcher(), run_under.launcher)
        capable(run_under.launcher, 0, 1)  # CAP_CHOWN, CAP_DAC_OVERRIDE
        run_under.prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
    streams = {name: str(everyones / name) for name in ("stdout", "stderr", "record")}
    user = {"user": "nobody"} if by == "root" else {}
    script = f'mv {own} "${{PAGELAB_PLAN%/plan}}/guests"'
    run = run_under("", ["sh", "-c", script], run_dir_root=str(roots), **user, **streams).succeeded()
    assert [path.name for path in everyones.rglob("kept")] == ["kept"], run.story()
    assert "is in it; look at what is in it" in run.launcher_stderr, run.story()


def test_the_guard_removes_the_run_directory_and_not_what_has_its_name(tmp_path: Path) -> None:
    open_to_all(tmp_path)
    roots = tmp_path / "roots"
    roots.mkdir()
    os.chown(roots, NOBODY, NOBODY)
    (roots / "precious").mkdir(0o700)
    (roots / "precious" / "kept").touch()
    guard = start_launcher(tmp_path, ["sleep", "600"], user="nobody", run_dir_root=str(roots))
    assert wait_until(lambda: children_of(guard.pid) != [])
    (launcher,) = children_of(guard.pid)
    assert wait_until(lambda: children_of(launcher) != [])
    (made,) = roots.glob("pagelab-*")
    made.rename(roots / "away")
    (roots / "precious").rename(made)
    os.kill(launcher, signal.SIGKILL)
    assert guard.wait(30) == 4
    assert [path.name for path in made.iterdir()] == ["kept"]
    assert list((roots / "away").iterdir()) == [], "what belongs to the run is gone"
    assert f"cannot remove {made}" in (tmp_path / "err").read_text()


def test_a_guest_file_that_shrinks_while_the_run_goes_on_harms_nobody_else(run_under: Runner) -> None:
    script = r"""
import glob, os, subprocess, time
guests = os.path.join(os.path.dirname(os.environ["PAGELAB_PLAN"]), "guests")
sleeper = subprocess.Popen(["sleep", "1.5"])
time.sleep(0.3)
for name in glob.glob(f"{guests}/{sleeper.pid}-*.guest"):
    os.truncate(name, 100)
time.sleep(0.1)
sleeper.kill()
"""
    run = run_under("", [PYTHON, "-c", script], user="nobody").succeeded()
    assert run.launcher_stderr == "", run.story()


FEEDER = r"""
import ctypes, os, sys, time
libc = ctypes.CDLL(None)
out = os.open(f"/proc/{sys.argv[1]}/fd/1", os.O_RDWR)
os.ftruncate(out, 1 << 60)
print("begun", flush=True)
end, step, place = time.monotonic() + 8, 1 << 16, 0
keep = 4096 * step
while time.monotonic() < end:
    for _ in range(256):
        os.pwrite(out, b"x", place)
        place += step
    if place > keep:
        libc.fallocate(out, 3, ctypes.c_long(place - keep - 256 * step), ctypes.c_long(256 * step))
"""
"""Writes to a program's output ahead of who reads it, without an end, and gives the space back behind it."""


@pytest.mark.parametrize("stdout", ["inherit", "null"])
def test_who_writes_on_to_the_output_of_a_program_that_has_ended_delays_no_launcher(
    tmp_path: Path, stdout: str
) -> None:
    began, search = time.monotonic(), {"fd": None, "regex": "took (?P<value>[0-9]+)"}
    fields = {"user": "nobody", "stdout": stdout, "measurements": search, "run_dir_root": "/dev/shm"}
    guard = start_launcher(tmp_path, ["sleep", "1"], **fields)
    assert wait_until(lambda: any(children_of(pid) for pid in children_of(guard.pid)))
    (program,) = children_of(children_of(guard.pid)[0])
    assert wait_until(lambda: Path(f"/proc/{program}/comm").read_text() == "sleep\n")
    attacker = subprocess.Popen(
        [PYTHON, "-c", FEEDER, str(program)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        stdout=subprocess.PIPE,
    )
    try:
        assert attacker.stdout is not None
        assert attacker.stdout.readline() == b"begun\n"
        assert guard.wait(20) in (0, 1)
        assert attacker.poll() is None, "it still writes"
        assert time.monotonic() - began < 6
    finally:
        attacker.kill()
        attacker.communicate()


MEASURES = {
    "without an end": "import os\nblock = b'x' * (1 << 20)\nfor _ in range(500): os.write(3, block)",
    "binary": "import os\nfor _ in range(64): os.write(3, os.urandom(1 << 20))",
    "a hole of a terabyte": "import os\nos.truncate('/proc/self/fd/3', 1 << 40)",
    "many names": "import os\nfor n in range(300000): os.write(3, b'%d 1\\n' % n)",
    "cut short": "import os\nos.write(3, b'a 1\\n' * 100)\nos.truncate('/proc/self/fd/3', 3)",
}


@pytest.mark.parametrize("what", MEASURES)
def test_measurements_take_bounded_memory_and_time(run_under: Runner, what: str) -> None:
    limit = 300 << 20
    run_under.prefix = ("prlimit", f"--data={limit}")
    begin = time.monotonic()
    run = run_under("", [PYTHON, "-c", MEASURES[what]], user="nobody", preload="never", measurements={"fd": 3})
    assert run.launcher_exit == 0, run.story()
    assert time.monotonic() - begin < 100, run.story()
    kinds = run.kinds()
    assert what == "cut short" or WarningKind.MEASUREMENT_UNPARSED in kinds, run.story()


@pytest.mark.parametrize("trap", ["fifo", "link"])
def test_standard_output_that_the_program_replaced_is_read_with_its_own_rights(
    run_under: Runner, tmp_path: Path, trap: str
) -> None:
    open_to_all(tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(0o777)
    secret = tmp_path / "secret"
    secret.write_text("password took 42 ms\n")
    secret.chmod(0o600)
    out = place / "out"
    plant = f"mkfifo {out}" if trap == "fifo" else f"ln -s {secret} {out}"
    run = run_under(
        "",
        ["sh", "-c", f"rm {out}; {plant}"],
        user="nobody",
        stdout=str(out),
        measurements={"fd": None, "regex": r"(?P<name>\w+) took (?P<value>\d+) (?P<unit>\w+)"},
        cwd="/",
    )
    assert run.record is not None, run.story()
    assert run.record.measurements == [], run.story()
    assert "password" not in run.launcher_stderr


def test_a_link_in_the_place_of_the_records_temporary_file_is_not_followed(run_under: Runner, tmp_path: Path) -> None:
    open_to_all(tmp_path)
    precious, place = tmp_path / "precious", tmp_path / "theirs"
    precious.write_text("root's own\n")
    place.mkdir()
    place.chmod(0o777)
    for name in ("record.tmp", "record.json"):
        (place / name).symlink_to(precious)
    run = run_under("", ["true"], user="nobody", record=str(place / "record.json"))
    assert run.launcher_exit == 0, run.story()
    assert precious.read_text() == "root's own\n"


def test_a_plan_for_root_is_put_where_nobody_else_can_replace_it(run_under: Runner, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for uid, mode, word in [(NOBODY, 0o755, "belongs to another user"), (0, 0o777, "others may write to")]:
        os.chown(theirs, uid, uid)
        theirs.chmod(mode)
        run = run_under("", ["true"], run_dir_root=str(theirs))
        assert (run.launcher_exit, run.record) == (3, None), run.story()
        assert word in run.launcher_stderr
    theirs.chmod(0o1777)
    run_under("", ["true"], run_dir_root=str(theirs)).succeeded()


def ask(address: str) -> tuple[int | str, int]:
    """What a caller who is none of the run's gets of the broker: its errno, and how many descriptors."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as broker:
        broker.settimeout(10)
        try:
            broker.connect(address)
            payload, fds, *_ = socket.recv_fds(broker, 4, 8)
        except OSError as error:
            return type(error).__name__, 0
    return (struct.unpack("<i", payload)[0] if len(payload) == 4 else "nothing"), len(fds)


@pytest.mark.skipif(not Path("/dev/userfaultfd").exists(), reason="no /dev/userfaultfd; needs Linux 6.1")
def test_who_is_not_of_the_run_gets_nothing_from_either_socket(run_under: Runner, tmp_path: Path) -> None:
    roots = tmp_path / "roots"
    open_to_all(tmp_path)
    roots.mkdir()
    answers = tmp_path / "answers"
    answers.touch()
    answers.chmod(0o666)
    outsider = r"""
import os, sys, time, glob
roots, answers = sys.argv[1:]
deadline = time.monotonic() + 30
while not (found := glob.glob(roots + "/pagelab-*/frames.sock")) and time.monotonic() < deadline:
    time.sleep(0.01)
"""
    import inspect

    code = f"import socket, struct\n{inspect.getsource(ask)}\n{outsider}\n" + (
        "for uid in (65533, 65534):\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        os.setgroups([]); os.setresgid(uid, uid, uid); os.setresuid(uid, uid, uid)\n"
        "        name = os.path.basename(os.path.dirname(found[0]))\n"
        "        for address in (found[0], '\\0' + name + '/frames.sock'):\n"
        "            open(answers, 'a').write(repr(ask(address)) + '\\n')\n"
        "        os._exit(0)\n"
        "    os.waitpid(child, 0)\n"
        "open(answers + '.done', 'w').close()\n"
    )
    caller = subprocess.Popen([PYTHON, "-c", code.replace("int | str", "object"), str(roots), str(answers)])
    wait = f"while [ ! -e {answers}.done ]; do sleep 0.05; done"
    run = run_under('frames = "page-coloring"', ["sh", "-c", wait], user="nobody", run_dir_root=str(roots))
    caller.wait(30)
    run.succeeded()
    told = answers.read_text().splitlines()
    assert told == ["('PermissionError', 0)", "(1, 0)", "(1, 0)", "(1, 0)"], run.story()
