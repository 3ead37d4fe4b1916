"""What failed in a half of `.ci/run`, run by itself: three times, and it has to pass each time.

``python -m tools.again DIR [DIR ...]``: each DIR is a half's cache of pytest, with its exit status beside. In .ci/run
two halves share the machine with compilers, which disturbs some tests for a moment. A fault stays when they are gone.
More than a few failures are no disturbance. What passes here is named all the same.

A fault may also need what an earlier test left behind. So the files of these tests run once as a whole, too, as far as
there is time; and what passes here in two runs of .ci/run in a row fails the second: it is no disturbance either.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

FEW = 5
TIMES = 3
SELECTED = ("-m", "not slow", "--by-turns")
"""As in the halves."""
FILES_S = 240.0
"""How long the files of the failed tests may run."""
ENDING_S = 60.0
FAILED = 1
"""pytest's exit status after a failed test."""
LAST = Path("target", "unstable")
"""The tests that were unstable in the last run."""


def failed(half: Path) -> list[str] | None:
    """The tests that failed in a half; None if it did not run to its end, or failed otherwise."""
    try:
        status = int((half / "status").read_text())
    except (OSError, ValueError):
        return None
    if status == 0:
        return []
    found = half / "v" / "cache" / "lastfailed"
    names = list(json.loads(found.read_text())) if status == 1 and found.exists() else []
    return names if names and all("::" in name for name in names) else None


def passes(words: list[str], limit_s: float | None = None) -> bool:
    """Whether tests pass; true as well if none has failed when the time is over, and the last one ends soon."""
    with subprocess.Popen([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *words]) as running:
        try:
            return running.wait(limit_s) == 0
        except subprocess.TimeoutExpired:
            print(f"ended after {limit_s:g} s: {' '.join(words)}", file=sys.stderr)
            running.send_signal(signal.SIGTERM)  # upon which the tests put the machine's settings back
            with suppress(subprocess.TimeoutExpired):
                return running.wait(ENDING_S) != FAILED
            running.kill()
            return False


def last() -> set[str]:
    with suppress(OSError, ValueError):
        return set(json.loads(LAST.read_text()))
    return set()


def remember(names: list[str]) -> None:
    LAST.parent.mkdir(exist_ok=True)
    LAST.write_text(json.dumps(names))


def main(halves: list[Path]) -> int:
    names: list[str] = []
    for half in halves:
        found = failed(half)
        if found is None:
            print(f"{half.name}: ended without a list of failed tests; see its output", file=sys.stderr)
            remember([])
            return 1
        names += found
    if not names:
        remember([])
        return 0
    print(f"{len(names)} failed: {' '.join(names)}", file=sys.stderr)
    twice = sorted(last().intersection(names))
    remember([])
    if len(names) > FEW:
        print(f"more than {FEW} are not run again", file=sys.stderr)
        return 1
    files = list(dict.fromkeys(name.partition("::")[0] for name in names))
    if not all(passes(names) for _ in range(TIMES)) or not passes([*SELECTED, "-x", *files], FILES_S):
        return 1
    print(f"UNSTABLE, failed once and passed {TIMES} times by themselves: {' '.join(names)}", file=sys.stderr)
    remember(names)
    if twice:
        print(f"UNSTABLE in two runs in a row, which is a failure: {' '.join(twice)}", file=sys.stderr)
    return 1 if twice else 0


if __name__ == "__main__":
    sys.exit(main([Path(word) for word in sys.argv[1:]]))
