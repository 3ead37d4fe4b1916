"""Policies that place frames, the arguments of their guests, and the requirements of the machine."""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import pytest

from .guests import Guest
from .policies import MOSAIC_TOML, Policy

FRAMES = Path(__file__).parent.parent / "guests" / "frames"
_SYS_USERFAULTFD = 323
_UFFDIO_API = 0xC018AA3F
_UFFD_API = 0xAA
_FEATURE_MOVE = 1 << 16


@dataclass(frozen=True)
class FramesPolicy(Policy):
    """``told``: the environment by which a guest of ``tests/guests/frames`` knows what it is promised."""

    told: dict[str, str] = field(default_factory=dict, hash=False)

    @property
    def is_pinned(self) -> bool:
        return "pin = true" in self.toml

    def missing(self) -> str | None:
        return super().missing() or _missing()

    def environment(self) -> dict[str, object]:
        """The request's field ``env``. A pool may keep 64 MiB, or 5% of what it placed."""
        return {"clear": False, "set": self.told | {"GUEST_POOL_BYTES": str(64 << 20)}, "unset": []}


def with_small_pool(policy: FramesPolicy) -> FramesPolicy:
    """For guests that look whether memory is given back: without a budget, `modulo` on few colours holds the frames of
    others, up to a quarter of the free memory.
    """
    return replace(policy, toml=policy.toml.replace('"modulo"', '"modulo", budget = "64M"'))


def possible(policy: FramesPolicy) -> FramesPolicy:
    """The policy, or a skip that names its requirements."""
    missing = policy.missing()
    if missing:
        pytest.skip(missing)
    return policy


@cache
def _missing() -> str | None:
    """Why frames cannot be placed here, asked of the kernel itself and not of pagelab; None where they can."""
    if os.geteuid() != 0:
        return "frame numbers are for root only; run: sudo make test"
    libc = ctypes.CDLL(None, use_errno=True)
    fd = libc.syscall(_SYS_USERFAULTFD, os.O_CLOEXEC)
    if fd < 0:
        return f"no userfaultfd here ({os.strerror(ctypes.get_errno())}); run: sysctl vm.unprivileged_userfaultfd=1"
    try:
        answer = fcntl.ioctl(fd, _UFFDIO_API, struct.pack("QQQ", _UFFD_API, 0, 0))
    finally:
        os.close(fd)
    if not struct.unpack("QQQ", answer)[1] & _FEATURE_MOVE:
        return "this kernel has no UFFDIO_MOVE; boot Linux 6.8 or newer"
    return None


def frames_policy(name: str, kind: str, colours: int, more: str = "", toml: str = "", **told: str) -> FramesPolicy:
    """``more``: further parameters of the strategy; ``toml``: further lines of the policy; ``told``: FRAMES_… words."""
    words = {"strategy": kind, "colours": str(colours), **told}
    said = "" if "masks" in told else f", colors = {colours}"
    return FramesPolicy(
        name,
        f'frames = {{ kind = "{kind}"{said}{more} }}\n{toml}',
        root=True,
        told={f"FRAMES_{word.upper()}": value for word, value in words.items()},
    )


PATTERN = [3, 1, 4, 1, 5, 9, 2]
MASKS = ["0x11", "0x22", "0x44", "0x88"]
_LIST = ", ".join(f'"{mask}"' for mask in MASKS)
SEVERAL_TOML = """
[[rule]]
memory = ["heap"]
frames = { kind = "bin-hopping", colors = 16 }
[[rule]]
memory = ["data"]
frames = { kind = "random", colors = 16 }
"""
PART_TOML = """
frames = "kernel"
[[rule]]
memory = ["anon", "arenas"]
at_least = "64K"
frames = { kind = "page-coloring", colors = 64 }
"""

MAIN = [
    frames_policy("page-coloring", "page-coloring", 64),
    frames_policy("bin-hopping", "bin-hopping", 64),
    frames_policy(
        "modulo", "modulo", 16, f", pattern = {PATTERN}", pattern=",".join(str(colour) for colour in PATTERN)
    ),
    frames_policy("random", "random", 64, ", seed = 7", seed="7"),
]
"""One of every strategy that can be kept everywhere: these run in every test."""

VARIANTS = [
    frames_policy("hashed-48", "page-coloring", 48, ', hash = "pid"', hash="pid"),
    frames_policy("masks", "page-coloring", 16, f", masks = [{_LIST}]", masks=",".join(MASKS)),
    frames_policy("window-16", "page-coloring", 64, ", fault-around = 16", around="16"),
    frames_policy("window-1", "page-coloring", 64, ", fault-around = 1", around="1"),
    frames_policy("bins-around-8", "bin-hopping", 20, ", fault-around = 8", around="8"),
    frames_policy("random-1021", "random", 1021, ", seed = 3", seed="3"),
    frames_policy("pinned", "page-coloring", 64, ", pin = true"),
    frames_policy("prefault", "page-coloring", 64, toml='fetch = "prefault"\n', around="64", prefault="1"),
    FramesPolicy("several", frames_policy("", "page-coloring", 64, toml=SEVERAL_TOML).toml, root=True),
    FramesPolicy("part", PART_TOML, root=True),
    FramesPolicy("with-tiles", 'frames = { kind = "page-coloring", colors = 64 }\n' + MOSAIC_TOML, root=True, thp=True),
]
"""Parameters and mixtures. Those that tell their guests nothing mix promises: contents are checked, colours are not."""

BY_NAME = {policy.name: policy for policy in [*MAIN, *VARIANTS]}

_CALLS = {
    "order": [],  # test_frames_strategies
    "swap": [],  # test_frames_memory, and the next five
    "swapped_pool": [],
    "squeezed": [],
    "hog": [],
    "without_thp": [],
    "nodes": [],  # tests/emulated_nodes
    "descriptors": [
        Guest("frames/descriptors", (how,), f"descriptors-{how}")
        for how in ("closed", "taken", "replaced", "few", "pipe")
    ],
    "existing": [Guest("frames/existing", ("placed",), "existing")],
    "outlived": [Guest("frames/outlived", (how,), f"outlived-{how}") for how in ("exit", "exec", "no-file")],
    "race": [Guest("frames/race", ("6", "300", "1"), "race")],
    "real_time": [
        Guest("frames/real_time", (how,), f"real-time-{how}")
        for how in ("itself", "raised", "direct", "thread", "lowered")
    ],
    "threads": [
        Guest("frames/threads", (str(os.cpu_count() or 1), "3000"), "threads-as-cores"),
        Guest("frames/threads", ("8", "1500"), "threads-8"),
    ],
}


def frames_guests() -> list[Guest]:
    """All calls of the guests in ``tests/guests/frames`` that print "ok" and exit 0, natively too."""
    programs = sorted(path.stem for path in FRAMES.glob("*.c"))
    return [guest for program in programs for guest in _CALLS.get(program, [Guest(f"frames/{program}", (), program)])]
