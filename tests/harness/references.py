"""The guests of ``tests/guests/references``, and the policies under which they run."""

from __future__ import annotations

from .frames import BY_NAME as FRAMES
from .frames import MAIN, FramesPolicy
from .guests import Guest
from .policies import BY_NAME as SIZES
from .policies import Policy

EXACT = FramesPolicy(
    "exact",
    f"""
[[rule]]
memory = ["anon"]
frames = {{ kind = "exact", frames = {[0x40000 + 3 * page for page in range(512)]}, budget = "32M" }}
[[rule]]
memory = ["heap"]
frames = {{ kind = "page-coloring", colors = 64 }}
""",
    root=True,
)
"""Most of these frames are somebody else's: pages are rejected, held and given back."""

OFTEN: list[Policy] = [*(SIZES[name] for name in ("all-2M", "mosaic", "hugetlb")), *MAIN[:2]]
SELDOM: list[Policy] = [*MAIN[2:], EXACT, FRAMES["pinned"], FRAMES["with-tiles"]]


def guest(program: str, *arguments: str) -> Guest:
    words = [argument for argument in arguments if "{" not in argument]
    return Guest(f"references/{program}", arguments, "-".join([program, *words]))


FIRST = [
    guest("pipe", "vmsplice"),
    guest("zerocopy"),
    guest("uring", "write"),
    guest("uring", "remap"),
    guest("direct", "{directory}", "read"),
]
"""One of every way in which the kernel holds pages: these run under every policy in every test."""

FURTHER = [
    guest("pipe", "gift"),
    guest("pipe", "tee"),
    guest("pipe", "splice"),
    guest("uring", "read"),
    guest("direct", "{directory}", "write"),
    guest("direct", "{directory}", "remap"),
]
