"""Runs of ``pagelab-launch`` in the guest: programs that no library can be loaded into, under ``backend = "kernel"``.

``python3 -m kernel.records write DIRECTORY`` writes their requests; ``… check LOG`` judges the records on the console;
exit code 1 if anything is not as it must be.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.harness.emulated import parts

OPTIONAL = ("musl", "api-musl", "go")
"""Their compilers may be missing."""
COLORING = "frames = { page-coloring = { colors = 16 } }"
HEAP_SEQUENCE = '[[rule]]\nmemory = "heap"\nframes = { bin-hopping = { cache = "1M,8" } }'
NOT_STACK = '["heap", "anon", "arenas", "data"]'
SIGNAL = "trap 'echo heard' USR1; kill -USR1 $$; exit 7"
STOP = "(sleep 1; kill -CONT $$) & kill -STOP $$; exit 5"


@dataclass(frozen=True)
class Case:
    """A program of the guest, its policy, and the least number of pages that it asks for."""

    name: str
    argv: tuple[str, ...]
    frames: str
    pages: int
    exit_code: int = 0
    backend: str = "kernel"
    request: dict[str, Any] = field(default_factory=dict)
    files: bool = False
    """The pages are those that the program brings into the page cache."""
    by_address: bool = True
    """What a page gets follows from its address, so that the launcher can tell whether it has it."""
    by_program: bool = False
    """The policy places nothing: the program hints, and looks at its own pages."""
    most: int | None = None
    """The greatest number of pages that it asks for, where it touches others that nothing is asked for."""

    def document(self) -> dict[str, Any]:
        policy = f'backend = "{self.backend}"\n{self.frames}\n'
        return {
            "schema": "pagelab.request/1",
            "argv": list(self.argv),
            "policy_toml": policy,
            "preload": "never",
            "timeout_s": 60.0,
        } | self.request


LIBRARY: dict[str, Any] = {"preload": "always", "library": "/lib/libpagelab.so"}
BOTH_BACKENDS = (
    # tests/guests/api/both.c by pagelab_kernel.c: static, with musl, and in a program that could have the library.
    Case("api-static", ("both-static", "modules"), 'frames = "kernel"', 0, by_program=True),
    Case("api-musl", ("both-musl", "kernel"), 'frames = "kernel"', 0, by_program=True),
    Case("api-dynamic", ("both-dynamic", "kernel"), 'frames = "kernel"', 0, by_program=True),
    Case("api-policy", ("both-static", "kernel"), COLORING, 1000),
    # By the library, under each backend.
    Case("api-library", ("both", "kernel"), 'frames = "kernel"', 0, request=LIBRARY, by_program=True),
    Case("api-errors", ("errors",), 'frames = "kernel"', 0, request=LIBRARY, by_program=True),
    Case("api-children", ("children",), 'frames = "kernel"', 0, request=LIBRARY, by_program=True),
    Case("api-auto", ("both", "kernel"), 'frames = "kernel"', 0, backend="auto", request=LIBRARY, by_program=True),
    Case("api-pages", ("both", "kernel"), 'frames = "kernel"\npages = "4K"', 0, request=LIBRARY, by_program=True),
)
"""Programs that hint themselves."""

CASES = (
    *BOTH_BACKENDS,
    Case("static", ("static_program",), COLORING, 10),
    Case(
        "static-sequence", ("static_program",), 'frames = { bin-hopping = { cache = "256K,4" } }', 10, by_address=False
    ),
    Case("static-masks", ("static_program",), 'frames = { page-coloring = { masks = ["0x11", "0x22"] } }', 10),
    # One of its data, one of its heap, the first and the last of its block: the stack's is there before the hint.
    Case("musl", ("musl_program",), "frames = { random = { colors = 16, seed = 7 } }", 4),
    Case("go", ("go_program",), 'frames = { page-coloring = { colors = 16, hash = "pid" } }', 40),
    Case("pattern", ("static_program",), "frames = { modulo = { colors = 16, pattern = [1, 3] } }", 10),
    Case("all-memory", ("governed",), COLORING, 1000),
    Case("child", ("governed", "child"), COLORING, 1000),
    Case("heap", ("governed", "heap"), f'[[rule]]\nmemory = "heap"\n{COLORING}', 199, most=260),
    Case("heap-sequence", ("governed", "heap"), HEAP_SEQUENCE, 199, exit_code=1, by_address=False, most=260),
    Case("not-stack", ("governed", "heap"), f"[[rule]]\nmemory = {NOT_STACK}\n{COLORING}", 599, most=700),
    Case("files", ("cp", "/mnt/file", "/tmp/copy"), f'[[rule]]\nmemory = "file"\n{COLORING}', 256, files=True),
    Case("auto", ("governed",), COLORING, 1000, backend="auto"),
    # The program does find pages of other colours, where nobody places them.
    Case("not-placed", ("governed",), 'frames = "kernel"', 0, exit_code=1, backend="library"),
    Case("other-user", ("static_program",), COLORING, 10, request={"user": "user"}),
    Case("signal", ("sh", "-c", SIGNAL), COLORING, 10, exit_code=7),
    Case("stopped", ("sh", "-c", STOP), COLORING, 10, exit_code=5),
    # The library prefaults, and the kernel places what it brings in.
    Case(
        "with-library",
        ("governed-dynamic",),
        COLORING + '\nfetch = "prefault"',
        1000,
        request=LIBRARY,
    ),
)


def wrong(case: Case, record: dict[str, Any]) -> Iterator[str]:
    if record["outcome"]["exit_code"] != case.exit_code:
        yield f"the program's outcome is {record['outcome']}"
    frames = record["frames"]
    if case.by_program:
        if frames is not None:
            yield f"the record counts pages that no policy asked for: {frames}"
        return
    if case.backend == "library":
        if frames is not None:
            yield f"frames were placed: {frames}"
        return
    if frames is None or frames["rights"] != "kernel" or len(frames["strategies"]) != 1:
        yield f"the kernel placed nothing: {frames}"
        return
    one = frames["strategies"][0]
    print(
        f"    {case.name}: {one['kind']}: {one['placed_pages']} of {one['requested_pages']} pages placed, "
        f"{one['kept_pages']} of {one['resident_pages']} as asked at exit, {one['moved_pages']} moved"
    )
    if one["requested_pages"] < case.pages:
        yield f"only {one['requested_pages']} pages were asked for"
    if case.most is not None and one["requested_pages"] > case.most:
        yield f"{one['requested_pages']} pages were asked for, more than those of the memory that the rule names"
    if one["placed_pages"] != one["requested_pages"]:
        yield f"{one['fallback_pages']} pages fell back"
    if case.files:
        if one["resident_pages"] or one["by_colour"] is not None:
            yield f"pages of files were looked at: {one}"
        return
    if one["resident_pages"] < case.pages // 2:
        yield f"only {one['resident_pages']} pages were looked at"
    if case.by_address and one["kept_pages"] != one["resident_pages"]:
        yield f"{one['kept_pages']} of {one['resident_pages']} pages are of the colour asked for"
    spread = one["by_colour"]["placed_pages"]
    if not case.by_address and one["resident_pages"] == one["placed_pages"] and max(spread) - min(spread) > 1:
        yield f"a sequence of colours is spread unevenly: {spread}"
    counted = frames["page_color"].get(one["kind"], {}).get("placed", 0)
    if counted < one["placed_pages"]:
        yield f"/proc/page_color counted {counted}, the process {one['placed_pages']}"
    yield from (
        f"warning: {one}"
        for one in record["warnings"]
        if one["kind"].startswith("frames-") and "reach" not in one["kind"]
    )


def problems(console: str) -> Iterator[str]:
    found, codes = parts(console)
    judged = [case for case in CASES if case.name in found or case.name not in OPTIONAL]
    for case in judged:
        text = found.get(case.name, "")
        line = next((line for line in text.splitlines() if line.startswith('{"schema"')), None)
        if line is None:
            yield f"{case.name}: exit code {codes.get(case.name)}: no record: {text.strip()}"
            continue
        yield from (f"{case.name}: {why}" for why in wrong(case, json.loads(line)))


def main() -> int:
    if sys.argv[1] == "write":
        directory = Path(sys.argv[2])
        directory.mkdir(parents=True, exist_ok=True)
        for case in CASES:
            (directory / f"{case.name}.json").write_text(json.dumps(case.document()))
        return 0
    console = Path(sys.argv[2]).read_text(errors="replace").replace("\r", "")
    said = list(problems(console))
    for line in said:
        print(f"{sys.argv[2]}: {line}", file=sys.stderr)
    return 1 if said else 0


if __name__ == "__main__":
    sys.exit(main())
