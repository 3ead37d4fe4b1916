"""``pagelab run`` with a command line that needs no library to be understood, which is most of them.

Building the parser of all options takes four times as long as the run of a short program. So the plain spellings are
read here, from a table that a test compares with the parser; whatever is not in it, help and every mistake are the
parser's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pagelab.cli.settings import FLAGS

VALUES: dict[str, str] = {
    "--policy": "policy",
    "--via": "via",
    "--backend": "backend",
    "--layout": "layout",
    "--cwd": "cwd",
    "--stdin": "stdin",
    "--stdout": "stdout",
    "--stderr": "stderr",
    "--run-dir": "run_dir",
    "--measure-regex": "measure_regex",
    "--output": "output",
    "-o": "output",
}
"""Options with one value → argument of ``pagelab run``; the settings of a run (``FLAGS``) are others."""
LISTS: dict[str, str] = {
    "--pages": "pages",
    "--fetch": "fetch",
    "--frames": "frames",
    "--env": "env",
    "--unset": "unset",
    "--events": "events",
    "-e": "events",
    "--flush": "flush",
}
"""Options that may be repeated."""
SWITCHES: dict[str, tuple[str, bool]] = {
    "--preload": ("preload", True),
    "--no-preload": ("preload", False),
    "--clear-env": ("clear_env", True),
    "--per-process": ("per_process", True),
    "--totals-only": ("per_process", False),
    "--json": ("json_", True),
    "--quiet": ("quiet", True),
    "-q": ("quiet", True),
    "--propagate": ("propagate", True),
}
"""Options without a value, and what they say."""
PATHS = {"policy", "layout", "cwd", "run_dir", "output"}
_KINDS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "number": (r"[0-9]{1,9}", int),
    "seconds": (r"[0-9]{1,9}(\.[0-9]{1,9})?", float),
}


def arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """The arguments of ``pagelab run``, by the names of its parameters; None: the words need the whole parser."""
    found: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    at = 0
    while at < len(words) and words[at].startswith("-"):
        word = words[at]
        at += 1
        if word == "--":
            break
        if word in SWITCHES:
            name, said = SWITCHES[word]
            if name in found:
                return None
            found[name] = said
            continue
        option, equals, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not equals:
            value = words[at] if at < len(words) else ""
            at += 1
        if not value or value.startswith("-"):
            return None
        if not _take(option, value, found, settings):
            return None
    argv = list(words[at:])
    if not argv or not _are_text(words):
        return None
    return {**found, "argv": argv, "settings": settings}


def _take(option: str, value: str, found: dict[str, Any], settings: dict[str, Any]) -> bool:
    """Stores the option's value; returns whether this module knows the option and can read the value."""
    if option in LISTS:
        found.setdefault(LISTS[option], []).append(value)
        return True
    name = VALUES.get(option)
    if name is not None and name not in found:
        found[name] = Path(value) if name in PATHS else value
        return True
    flag = option.removeprefix("--")
    one = FLAGS.get(flag) if option != flag else None
    if one is None or flag in settings:
        return False
    pattern, read = _KINDS.get(one.kind, (".*", str))
    if re.fullmatch(pattern, value) is None:
        return False
    settings[flag] = read(value)
    return True


def _are_text(words: Sequence[str]) -> bool:
    """Whether all words are valid UTF-8, which names of files need not be."""
    try:
        "".join(words).encode()
    except UnicodeEncodeError:
        return False
    return True


def attempt(words: Sequence[str]) -> int | None:
    """Executes the command line ``words`` and returns the exit code; None: it needs the whole parser."""
    if words[:1] != ["run"] or "_PAGELAB_COMPLETE" in os.environ:
        return None
    found = arguments(words[1:])
    if found is None:
        return None
    from pagelab import terminal
    from pagelab.cli.run_once import Asked, perform

    if found.get("json_"):
        terminal.only_json()
    try:
        return perform(Asked(**found))
    except BrokenPipeError:
        # Whoever reads has gone, and what is left in the buffers would be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
