"""What a boot of ``kernel/guest/init`` printed: every test's result, the kernel's own tests, and its warnings.

``python3 -m kernel.check LOG LIST``, with the list of tests the guest was told to run; exit code 1 if anything failed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.harness.emulated import parts

#: Words of a kernel in trouble, wherever they stand on the console.
TROUBLE = re.compile(
    r"WARNING:|BUG:|BUG at|Call Trace|Oops|general protection|Kernel panic|KASAN:|UBSAN:"
    r"|possible (circular|recursive|irq)|INFO: (task|rcu|possible|trying)"
    r"|[Bb]ad page|page allocation failure|Out of memory"
)


def kernel_troubles(console: str) -> list[str]:
    return [line.strip() for line in console.splitlines() if TROUBLE.search(line)]


def failed_kunit(log: str) -> list[str]:
    return [line.strip() for line in log.splitlines() if re.search(r"\bnot ok \d+ ", line)]


def passed_kunit(log: str) -> int:
    """Cases of the page colors' suite: four spaces more than the suite's own line."""
    return len(re.findall(r"^(?:\[[ .\d]+\] )? {4}ok \d+ ", log, re.MULTILINE))


def last_line(console: str) -> str:
    """The last line of QEMU or the kernel; if a time limit ended QEMU, ``emulated_boot`` writes that there."""
    return next((line.strip() for line in reversed(console.splitlines()) if line.strip()), "(there is none)")


#: Lists of tests that ``init`` runs by their names.
BY_NAME = {"chosen", "placement", "boot-default", "bad-parameter", "cma", "cost"}
#: Parts of the console that are no test, and so have no exit code.
TOLD = {"wanted", "kernel", "statistics", "log", "end", "said", "measured"}


def unfinished(found: dict[str, str], codes: dict[str, int]) -> Iterator[str]:
    """Tests that began or were to begin, and whose result is not on the console."""
    yield from (f"{name}: no exit code" for name in found if name not in codes and name not in TOLD)
    wanted = found.get("wanted", "").split()
    yield from (f"{name}: not run" for name in wanted if name not in codes and name not in found)


def problems(console: str, wanted: str) -> Iterator[str]:
    found, codes = parts(console)
    if "end" not in found:
        yield f"the machine did not come to the end; the console's last line: {last_line(console)}"
    if not codes:
        yield "no test was run"
    for name, code in codes.items():
        print(f"  {'ok    ' if code == 0 else 'FAILED'} {name}")
        if code:
            yield f"{name}: exit code {code}: {found.get(name, '').strip()}"
    yield from unfinished(found, codes)
    if wanted in BY_NAME and not found.get("wanted"):
        yield "the console does not say which tests were to run"
    log = found.get("log", "")
    yield from (f"the kernel says: {line}" for line in kernel_troubles(console))
    yield from (f"KUnit: {line}" for line in failed_kunit(log))
    if wanted != "stock":
        cases = passed_kunit(log)
        print(f"  KUnit: {cases} cases passed")
        if cases < 3:
            yield "KUnit's cases of page colors did not run"
    if "page_color_slab: needs page_color=" in log:
        yield "page_color_slab=0 is taken for page_color_slab"
    said = "page_color=1000,7,nonsense: -" in log
    if said != (wanted == "bad-parameter"):
        yield f"the bad boot parameter is {'' if said else 'not '}complained about"


def main() -> int:
    path, wanted = Path(sys.argv[1]), sys.argv[2]
    console = path.read_text(errors="replace").replace("\r", "")
    print(f"{wanted}:")
    wrong = list(problems(console, wanted))
    for line in wrong:
        print(f"{path}: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
