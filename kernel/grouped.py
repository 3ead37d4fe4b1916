"""Runs of ``pagelab-launch`` under the library in the guest, each in a control group of version 2 with little room.

``python3 -m kernel.grouped write DIRECTORY LAUNCHER`` writes requests, and the bytes that each policy may take besides
the program; ``… check LOG SHARE`` judges the records on the console, with at most this share of pages astray; exit
code 1 if anything is not as it must be.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.harness.emulated import parts

RESOURCE = "memory of a control group"
COLORS = "colors = 16"
CASES = {
    "group-kernel": ("kernel", ""),
    "group-sizes": ("sizes", 'pages = "4K"'),
    "group-page-coloring": ("frames", f"frames = {{ page-coloring = {{ {COLORS} }} }}"),
    "group-bin-hopping": ("frames", f"frames = {{ bin-hopping = {{ {COLORS} }} }}"),
    "group-modulo": ("frames", f"frames = {{ modulo = {{ {COLORS}, pattern = [3, 1, 4] }} }}"),
}
"""Name → column of the launcher's table, and policy."""


TOLD_BELOW = 8
"""Room below this multiple of a policy's need is a warning."""
PAGES = 16 << 8


def write(directory: Path, launcher: str) -> None:
    text = subprocess.run([launcher, "--surcharges"], capture_output=True, text=True, check=True).stdout
    (adds,) = (row["adds"] for row in json.loads(text) if row["resource"] == RESOURCE)
    directory.mkdir(parents=True, exist_ok=True)
    for name, (column, policy) in CASES.items():
        request = {
            "schema": "pagelab.request/1",
            "argv": ["group_memory", "16"],
            "policy_toml": policy,
            "preload": "always",
            "library": "/lib/libpagelab.so",
            "timeout_s": 1000.0,
        }
        (directory / f"{name}.json").write_text(json.dumps(request))
        (directory / f"{name}.bytes").write_text(f"{adds[column]}\n")


def wrong(name: str, record: dict[str, Any], limit: int, astray: float) -> Iterator[str]:
    if record["outcome"]["status"] != "ok":
        yield f"the program's outcome is {record['outcome']}"
    told = [
        one["data"]
        for one in record["warnings"]
        if one["kind"] == "room-scarce" and one["data"]["resource"] == RESOURCE
    ]
    told_of = [one for one in told if one["limit"] - one["used"] < TOLD_BELOW * one["adds"]]
    if [one["limit"] for one in told_of] != [limit] * (CASES[name][0] != "kernel"):
        yield f"the group's limit of {limit} bytes: {told}"
    if CASES[name][0] == "frames":
        (one,) = record["frames"]["strategies"]
        print(f"    {name}: {one['placed_pages']} pages placed, {one['fallback_pages']} not as asked")
        if one["requested_pages"] < 0.99 * PAGES or one["zero_pages"] > 0:
            yield f"{one['zero_pages']} of {one['requested_pages']} pages were left to the kernel"
        # With less than 2.7 MiB of room, colours may be missing (docs/frames.md); modulo would have to hold all others.
        if one["fallback_pages"] > astray * PAGES and one["kind"] != "modulo":
            yield f"{one['fallback_pages']} pages are of other colours"


def problems(console: str, astray: float) -> Iterator[str]:
    found, _ = parts(console)
    for name in CASES:
        text = found.get(name, "")
        line = next((line for line in text.splitlines() if line.startswith('{"schema"')), None)
        room = re.search(r"natively (\d+), in the end (\d+) of (\d+)", text)
        if line is None or room is None:
            yield f"{name}: no record: {text.strip()}"
            continue
        native, used, limit = map(int, room.groups())
        print(f"    {name}: {native >> 10} KiB natively, {used >> 10} of {limit >> 10}")
        yield from (f"{name}: {why}" for why in wrong(name, json.loads(line), limit, astray))


def main() -> int:
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), sys.argv[3])
        return 0
    console = Path(sys.argv[2]).read_text(errors="replace").replace("\r", "")
    said = list(problems(console, float(sys.argv[3])))
    for line in said:
        print(f"{sys.argv[2]}: {line}", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
