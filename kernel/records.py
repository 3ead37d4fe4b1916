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

OPTIONAL = ("musl", "api-musl", "go", "api-go")
"""Cases whose compilers may be missing."""
COLORING = "frames = { page-coloring = { colors = 16 } }"
HEAP_SEQUENCE = '[[rule]]\nmemory = "heap"\nframes = { bin-hopping = { cache = "1M,8" } }'
HEAP = f'[[rule]]\nmemory = "heap"\n{COLORING}'
FILE = '[[rule]]\nmemory = "file"\nframes = { page-coloring = { colors = 8 } }'
EACH = (
    HEAP_SEQUENCE + f'\n[[rule]]\nmemory = ["anon", "arenas"]\n{COLORING}\n'
    '[[rule]]\nmemory = "data"\nframes = { random = { colors = 16, seed = 7 } }\n' + FILE
)
NOT_STACK = '["heap", "anon", "arenas", "data"]'
SIGNAL = "trap 'echo heard' USR1; kill -USR1 $$; exit 7"
STOP = "(sleep 1; kill -CONT $$) & kill -STOP $$; exit 5"


@dataclass(frozen=True)
class Placed:
    """What one strategy of a policy places: the least number of pages that the program asks it for."""

    pages: int
    files: bool = False
    """The pages are those that the program brings into the page cache."""
    by_address: bool = True
    """What a page gets follows from its address, so that the launcher can tell whether it has it."""
    most: int | None = None
    """The greatest number of pages that it asks for, where it touches others that nothing is asked for."""


@dataclass(frozen=True)
class Case:
    """A program of the guest, its policy, and what each strategy of it is asked for."""

    name: str
    argv: tuple[str, ...]
    frames: str
    placed: tuple[Placed, ...]
    exit_code: int | None = 0
    """The program's exit code; None if it depends on where its heap begins."""
    backend: str = "kernel"
    request: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        policy = f'backend = "{self.backend}"\n{self.frames}\n'
        return {
            "schema": "pagelab.request/1",
            "argv": list(self.argv),
            "policy_toml": policy,
            "preload": "never",
            "timeout_s": 1000.0,
        } | self.request


PLACED_EACH = (
    Placed(199, by_address=False, most=260),
    Placed(200, most=260),
    Placed(400, most=460),
    Placed(64, True, most=80),
)
LIBRARY: dict[str, Any] = {"preload": "always", "library": "/lib/libpagelab.so"}
BOTH_BACKENDS = (
    # tests/guests/api/both.c by pagelab_kernel.c: static, with musl, and in a program that could have the library.
    Case("api-static", ("both-static", "machine"), 'frames = "kernel"', ()),
    Case("api-musl", ("both-musl", "kernel"), 'frames = "kernel"', ()),
    Case("api-dynamic", ("both-dynamic", "kernel"), 'frames = "kernel"', ()),
    Case("api-go", ("api_go",), 'frames = "kernel"', ()),
    # Beside a policy: what the program hints is not judged by it.
    Case("api-policy", ("both-static", "policy"), COLORING, (Placed(600),)),
    Case("api-rule", ("both-static", "rule"), HEAP, (Placed(300, most=340),)),
    Case("api-rule-library", ("both", "rule"), HEAP, (Placed(300),), request=LIBRARY),
    # By the library, under each backend.
    Case("api-library", ("both", "kernel"), 'frames = "kernel"', (), request=LIBRARY),
    Case("api-errors", ("errors",), 'frames = "kernel"', (), request=LIBRARY),
    Case("api-children", ("children",), 'frames = "kernel"', (), request=LIBRARY),
    Case("api-auto", ("both", "kernel"), 'frames = "kernel"', (), backend="auto", request=LIBRARY),
    Case("api-pages", ("both", "kernel"), 'frames = "kernel"\npages = "4K"', (), request=LIBRARY),
)
"""Programs that give hints themselves."""

CASES = (
    *BOTH_BACKENDS,
    Case("static", ("static_program",), COLORING, (Placed(10),)),
    Case(
        "static-sequence",
        ("static_program",),
        'frames = { bin-hopping = { cache = "256K,4" } }',
        (Placed(10, by_address=False),),
    ),
    Case(
        "static-masks", ("static_program",), 'frames = { page-coloring = { masks = ["0x11", "0x22"] } }', (Placed(10),)
    ),
    # One of its data, one of its heap, the first and the last of its block: the stack's is there before the hint.
    Case("musl", ("musl_program",), "frames = { random = { colors = 16, seed = 7 } }", (Placed(4),)),
    Case("go", ("go_program",), 'frames = { page-coloring = { colors = 16, hash = "pid" } }', (Placed(40),)),
    Case("pattern", ("static_program",), "frames = { modulo = { colors = 16, pattern = [1, 3] } }", (Placed(10),)),
    Case("all-memory", ("governed",), COLORING, (Placed(1000),)),
    Case("pinned", ("governed",), "frames = { page-coloring = { colors = 16, pin = true } }", (Placed(1000),)),
    Case("child", ("governed", "child"), COLORING, (Placed(1000),)),
    Case("heap", ("governed", "heap"), HEAP, (Placed(199, most=260),)),
    Case(
        "heap-sequence",
        ("governed", "heap"),
        HEAP_SEQUENCE,
        (Placed(199, by_address=False, most=260),),
        exit_code=None,
    ),
    Case("not-stack", ("governed", "heap"), f"[[rule]]\nmemory = {NOT_STACK}\n{COLORING}", (Placed(599, most=700),)),
    Case(
        "files",
        ("cp", "/mnt/file", "/tmp/copy"),
        f'[[rule]]\nmemory = "file"\n{COLORING}',
        (Placed(256, files=True),),
    ),
    # A strategy for each kind of memory but the stack: what each places is counted by itself.
    Case("each", ("governed", "each"), EACH, PLACED_EACH),
    # Its heap lies below its bss.
    Case("each-pie", ("governed-pie", "each"), EACH, PLACED_EACH),
    Case("default-and-file", ("governed", "each"), f"{COLORING}\n{FILE}", (Placed(800), Placed(64, True, most=80))),
    Case("auto", ("governed",), COLORING, (Placed(1000),), backend="auto"),
    # The program does find pages of other colours, where nobody places them.
    Case("not-placed", ("governed",), 'frames = "kernel"', (), exit_code=1, backend="library"),
    Case("other-user", ("static_program",), COLORING, (Placed(10),), request={"user": "user"}),
    Case("signal", ("sh", "-c", SIGNAL), COLORING, (Placed(10),), exit_code=7),
    Case("stopped", ("sh", "-c", STOP), COLORING, (Placed(10),), exit_code=5),
    # ALLOC's real-time setting (5.6); in the kernel of `--with realtime` under PREEMPT_RT.
    Case("fifo", ("governed",), COLORING, (Placed(1000),), request={"scheduler": "fifo"}),
    # The library prefaults, and the kernel places what it brings in.
    Case(
        "with-library",
        ("governed-dynamic",),
        COLORING + '\nfetch = "prefault"',
        (Placed(1000),),
        request=LIBRARY,
    ),
)


def wrong(case: Case, record: dict[str, Any]) -> Iterator[str]:
    allowed = (0, 1) if case.exit_code is None else (case.exit_code,)
    if record["outcome"]["exit_code"] not in allowed:
        yield f"the program's outcome is {record['outcome']}"
    scheduler = record["settings"]["scheduler"]
    if scheduler.startswith("SCHED_FIFO") != ("scheduler" in case.request):
        yield f"the program's scheduler is {scheduler}"
    frames = record["frames"]
    if not case.placed:
        if frames is not None:
            yield f"frames were placed: {frames}"
        return
    if frames is None or frames["rights"] != "kernel" or len(frames["strategies"]) != len(case.placed):
        yield f"the kernel placed something else: {frames}"
        return
    for number, (asked, one) in enumerate(zip(case.placed, frames["strategies"], strict=True), 1):
        print(
            f"    {case.name}: {one['kind']}: {one['placed_pages']} of {one['requested_pages']} pages placed, "
            f"{one['kept_pages']} of {one['resident_pages']} as asked at exit, {one['moved_pages']} moved"
        )
        if one["number"] != number:
            yield f"strategy {number} is numbered {one['number']}"
        yield from (f"{one['kind']}: {why}" for why in wrong_part(asked, one))
    for kind in {one["kind"] for one in frames["strategies"]}:
        placed = sum(one["placed_pages"] for one in frames["strategies"] if one["kind"] == kind)
        counted = frames["page_color"].get(kind, {}).get("placed", 0)
        if counted < placed:
            yield f"/proc/page_color counted {counted} of {kind}, the process {placed}"
    yield from (
        f"warning: {one}"
        for one in record["warnings"]
        if one["kind"].startswith("frames-") and "reach" not in one["kind"]
    )


def wrong_part(asked: Placed, one: dict[str, Any]) -> Iterator[str]:
    """What is wrong with one strategy's part of a record."""
    if one["requested_pages"] < asked.pages:
        yield f"only {one['requested_pages']} pages were asked for"
    if asked.most is not None and one["requested_pages"] > asked.most:
        yield f"{one['requested_pages']} pages were asked for, more than those of the memory that the rule names"
    if one["placed_pages"] != one["requested_pages"]:
        yield f"{one['fallback_pages']} pages fell back"
    if asked.files:
        if one["resident_pages"] or one["by_colour"] is not None:
            yield f"pages of files were looked at: {one}"
        return
    if one["resident_pages"] < asked.pages // 2:
        yield f"only {one['resident_pages']} pages were looked at"
    if asked.by_address and one["kept_pages"] != one["resident_pages"]:
        yield f"{one['kept_pages']} of {one['resident_pages']} pages are of the colour asked for"
    spread = one["by_colour"]["placed_pages"]
    if not asked.by_address and one["resident_pages"] == one["placed_pages"] and max(spread) - min(spread) > 1:
        yield f"a sequence of colours is spread unevenly: {spread}"


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
