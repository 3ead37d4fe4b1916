"""What the launcher does for frame placement, the engine apart: rights handed on, settings, modules, the record."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import pytest

from harness.frames import BY_NAME
from harness.launching import Runner, open_to_all
from pagelab.record import WarningKind

COLORING = BY_NAME["page-coloring"]
PYTHON = "/usr/bin/python3"
"""The system's: another user may not reach the one that runs the tests."""
COMPACT = Path("/proc/sys/vm/compact_unevictable_allowed")
NOBODY = 65534

needs_python = pytest.mark.skipif(not Path(PYTHON).exists(), reason="no system python3; run: apt install python3")
pytestmark = pytest.mark.skipif(COLORING.missing() is not None, reason=COLORING.missing() or "")

ASK = r"""
import ctypes, fcntl, mmap, os, socket, struct
page = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
page[0] = 1
def ask(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as broker:
        broker.settimeout(10)
        broker.connect(path)
        payload, fds, *_ = socket.recv_fds(broker, 4, 2)
    return struct.unpack("<i", payload)[0], fds
def look(path):
    errno, fds = ask(path)
    assert errno == 0, errno
    pagemap, device = fds
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    entry, = struct.unpack("Q", os.pread(pagemap, 8, address // 4096 * 8))
    assert entry >> 63 and entry & ((1 << 55) - 1), hex(entry)
    assert os.readlink(f"/proc/self/fd/{pagemap}") == f"/proc/{os.getpid()}/pagemap"
    uffd = fcntl.ioctl(device, 0xAA00, os.O_CLOEXEC | os.O_NONBLOCK)
    answer = fcntl.ioctl(uffd, 0xC018AA3F, struct.pack("QQQ", 0xAA, 1 << 16, 0))
    assert struct.unpack("QQQ", answer)[1] & 1 << 16
directory = os.path.dirname(os.environ["PAGELAB_PLAN"])
look(os.path.join(directory, "frames.sock"))
child = os.fork()
if child == 0:
    look("\0" + os.path.basename(directory) + "/frames.sock")
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
print("ok", os.getuid())
"""


@needs_python
def test_a_program_with_fewer_rights_gets_its_own_frame_numbers_and_a_userfaultfd(run_under: Runner) -> None:
    run = run_under(COLORING.toml, [PYTHON, "-c", ASK], user="nobody").succeeded()
    assert run.stdout == f"ok {NOBODY}\n", run.story()
    frames = run.the_record.frames
    assert frames is not None
    assert frames.rights == "broker"


GIVE_UP = r"""
import os
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
assert not os.access(os.path.dirname(os.environ["PAGELAB_PLAN"]), os.X_OK)
"""


@needs_python
def test_a_program_that_gives_its_rights_up_is_served_too(run_under: Runner) -> None:
    """As servers do: root at first, who needs no help, then another user, who cannot reach the run directory."""
    ask = ASK.replace('look(os.path.join(directory, "frames.sock"))\n', "")
    run = run_under(COLORING.toml, [PYTHON, "-c", GIVE_UP + ask]).succeeded()
    assert run.stdout == f"ok {NOBODY}\n", run.story()
    frames = run.the_record.frames
    assert frames is not None
    assert frames.rights == "own", "what it started with"


@needs_python
def test_nobody_from_outside_the_run_is_answered(tmp_path: Path, run_under: Runner) -> None:
    """This test is root and can open the socket's directory; but it is not of the run."""
    open_to_all(tmp_path)
    asked = tmp_path / "asked"
    script = f'''
import os, time
while not os.path.exists("{asked}"):
    time.sleep(0.01)
'''
    roots = tmp_path / "roots"
    roots.mkdir()
    open_to_all(roots)
    answers: list[int] = []

    def outsider() -> None:
        deadline = time.monotonic() + 60
        try:
            while time.monotonic() < deadline:
                for path in roots.glob("pagelab-*/frames.sock"):
                    assert path.stat().st_mode & 0o777 == 0o600
                    assert path.stat().st_uid == NOBODY
                    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as broker:
                        broker.settimeout(10)
                        broker.connect(str(path))
                        payload, fds, *_ = socket.recv_fds(broker, 4, 2)
                        assert fds == []
                        answers.append(struct.unpack("<i", payload)[0])
                    return
                time.sleep(0.01)
        finally:
            asked.touch()

    thread = threading.Thread(target=outsider)
    thread.start()
    run = run_under(COLORING.toml, [PYTHON, "-c", script], user="nobody", run_dir_root=str(roots))
    thread.join()
    run.succeeded()
    assert answers == [1], "EPERM"


@pytest.mark.parametrize("toml", [COLORING.toml, 'pages = "4K"\n'], ids=["frames", "no frames"])
def test_who_has_all_rights_needs_no_broker(toml: str, run_under: Runner) -> None:
    script = 'ls -A "${PAGELAB_PLAN%/plan}"'
    run = run_under(toml, ["sh", "-c", script]).succeeded()
    assert "plan" in run.stdout.split(), run.story()
    assert "frames.sock" not in run.stdout.split(), run.story()


def test_the_kernels_frames_are_no_business_of_the_record(run_under: Runner) -> None:
    run = run_under('frames = "kernel"\npages = "4K"\n', ["true"]).succeeded()
    assert run.the_record.frames is None
    assert run.root.frames is None


def test_pinning_keeps_compaction_away_while_the_run_goes_on(run_under: Runner) -> None:
    """And lifts the limit on locked memory where it may; where not, and locking is limited, it says so."""
    before = COMPACT.read_text().strip()
    if before != "1":
        pytest.skip(f"another run pins its pages; look: cat {COMPACT}")
    toml = 'frames = { kind = "page-coloring", colors = 64, pin = true }\n'
    run = run_under(toml, ["sh", "-c", f"cat {COMPACT}; ulimit -l"], user="nobody").succeeded()
    compact, limit = run.stdout.split()
    assert compact == "0", run.story()
    limited = [warning for warning in run.the_record.warnings if "limit_bytes" in warning.data]
    assert bool(limited) == (limit != "unlimited"), run.story()
    assert all("ulimit -l" in warning.message for warning in limited)
    assert COMPACT.read_text().strip() == before


def test_tiles_under_frames_are_said_to_keep_their_size(run_under: Runner) -> None:
    run = run_under('pages = "2M"\n' + COLORING.toml, ["true"]).succeeded()
    [said] = [w for w in run.the_record.warnings if w.kind is WarningKind.FRAMES_OUT_OF_REACH and "reason" in w.data]
    assert said.severity == "info"
    assert said.data["reason"] == "larger-page"
    assert "heap" in said.data["memory"]


MODULE = """
const struct { unsigned version, flags; unsigned long state, period; const char *name; void *calls[3]; }
    pagelab_strategy = { 1, 1, 0, 1, "test", { 0, 0, 0 } };
"""


def build(source: str, place: Path, name: str) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler; run: apt install gcc")
    (place / "module.c").write_text(source)
    made = place / name
    subprocess.run([compiler, "-shared", "-fPIC", "-o", made, place / "module.c"], check=True)
    return made


def test_modules_are_loaded_behind_the_library(tmp_path: Path, run_under: Runner) -> None:
    module = build(MODULE, tmp_path, "mine.so")
    toml = f'frames = {{ module = {{ path = "{module}", colors = 4 }} }}\n'
    run = run_under(toml, ["sh", "-c", "echo $LD_PRELOAD"]).succeeded()
    assert run.stdout.strip() == f"{os.path.realpath(run_under.library)}:{module}"


def test_a_shared_object_without_a_table_is_refused(tmp_path: Path, run_under: Runner) -> None:
    module = build("int pagelab_other;\n", tmp_path, "other.so")
    run = run_under(f'frames = {{ module = {{ path = "{module}", colors = 4 }} }}\n', ["true"])
    assert run.launcher_exit == 2
    assert f"{module} does not export the table `pagelab_strategy`" in run.launcher_stderr
    assert f"nm -D {module}" in run.launcher_stderr


def test_a_relative_module_lies_beside_its_policy(tmp_path: Path, run_under: Runner) -> None:
    module = build(MODULE, tmp_path, "beside.so")
    policy = tmp_path / "p.toml"
    run = run_under(
        'frames = { module = { path = "./beside.so", colors = 4 } }\n',
        ["sh", "-c", "echo $LD_PRELOAD"],
        policy_path=str(policy),
    ).succeeded()
    assert run.stdout.strip().endswith(f":{module}")
