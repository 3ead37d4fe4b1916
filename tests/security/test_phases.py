"""The launcher's and its guard's rights, phase by phase, as /proc shows them: exactly those of docs/security.md."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagelab import machine, paths

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
NUMBERS = {
    "chown": 0,
    "dac_override": 1,
    "kill": 5,
    "setgid": 6,
    "setuid": 7,
    "ipc_lock": 14,
    "sys_ptrace": 19,
    "sys_admin": 21,
    "sys_nice": 23,
    "sys_resource": 24,
    "perfmon": 38,
}
NOBODY = 65534
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root's capabilities; run: sudo make test")


def table() -> dict[str, int]:
    """Capabilities by phase, as the document has them."""
    rows = re.findall(r"^\| `([a-z-]+)` \| caller \| ([a-z_, ]+) \|", DOCUMENT.read_text(), re.MULTILINE)
    return {phase: sum(1 << NUMBERS[name] for name in names.split(", ")) for phase, names in rows}


def status(pid: int) -> dict[str, str]:
    return dict(line.split(":\t", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def rights(pid: int) -> tuple[int, int, list[str]]:
    """Effective and permitted capabilities, and users: of the only thread, since each has its own."""
    assert [task.name for task in Path(f"/proc/{pid}/task").iterdir()] == [str(pid)]
    found = status(pid)
    own = status(os.getpid())
    assert [found[name] for name in ("CapInh", "CapAmb", "Gid")] == [own[name] for name in ("CapInh", "CapAmb", "Gid")]
    return int(found["CapEff"], 16), int(found["CapPrm"], 16), found["Uid"].split()


def child_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


@pytest.mark.parametrize("user", [None, "nobody"])
@pytest.mark.parametrize("policy", ["", 'frames = "page-coloring"'])
def test_each_phase_has_exactly_the_documented_rights(tmp_path: Path, policy: str, user: str | None) -> None:
    if policy and not Path("/dev/userfaultfd").exists():
        pytest.skip("no /dev/userfaultfd; needs Linux 6.1")
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    request = {
        "schema": "pagelab.request/1",
        "argv": ["cat", "/proc/self/status"],
        "policy_toml": policy,
        "machine": machine.describe(),
        "library": str(paths.library()),
        "stdin": "null",
        "stdout": "inherit",
        "user": user,
        "events": ["faults"],
        "record": str(tmp_path / "record.json"),
        "phase_fd": theirs.fileno(),
    }
    source = tmp_path / "request.json"
    source.write_text(json.dumps(request))
    own = int(status(os.getpid())["CapPrm"], 16)
    expected, seen = table(), []
    assert set(expected) == {"guard", "prepare", "run", "run-frames", "collect"}, "no row that nobody looks at"
    guard = subprocess.Popen(
        [str(paths.launcher()), str(source)], pass_fds=[theirs.fileno()], stdout=subprocess.PIPE, text=True
    )
    theirs.close()
    with guard, ours, ours.makefile("rw") as lines:
        for line in lines:
            phase = line.strip()
            seen.append(phase)
            launcher = child_of(guard.pid)
            allowed = own & expected["run-frames" if phase == "run" and policy else phase]
            permitted = own if phase == "prepare" else allowed
            assert rights(launcher) == (allowed, permitted, ["0"] * 4), phase
            deadline = time.monotonic() + 5
            watching = (own & expected["guard"], own & expected["guard"], ["0"] * 4)
            while rights(guard.pid) != watching and time.monotonic() < deadline:
                time.sleep(0.01)
            assert rights(guard.pid) == watching, phase
            lines.write("!")
            lines.flush()
        assert guard.stdout is not None
        program = dict(line.split(":\t", 1) for line in guard.stdout.read().splitlines() if ":\t" in line)
    assert guard.returncode == 0
    assert seen == ["prepare", "run", "collect"]
    everything = int(status(os.getpid())["CapBnd"], 16)
    assert int(program["CapEff"], 16) == (0 if user else everything), "the program has all of its user's rights"
    assert program["Uid"].split() == ([str(NOBODY)] * 4 if user else ["0"] * 4)


def test_a_program_of_root_is_as_dumpable_as_natively() -> None:
    """An exec that brought it capabilities would make it a set-user-ID program to the kernel: no core dumps."""
    probe = "import ctypes; print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))"
    ran = subprocess.run(
        [sys.executable, "-m", "pagelab", "run", "--quiet", "--", sys.executable, "-c", probe],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.stdout.split()[:1] == ["1"], ran.stdout + ran.stderr
