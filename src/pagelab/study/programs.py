"""Identifies the measured programs of a study by content: a study whose program has changed is not continued."""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
from pathlib import Path

from .. import paths
from ..errors import quoted
from .plan import Condition, Plan


def path_with_bundled() -> str:
    """PATH for set-up and tear-down: the user's, followed by the directory of pagelab's own programs."""
    try:
        return os.pathsep.join([os.environ.get("PATH", os.defpath), str(paths.workload().parent)])
    except paths.MissingPartError:
        return os.environ.get("PATH", os.defpath)


def resolve(condition: Condition) -> Path | None:
    """The program file of the condition's first word, looked up as exec does; None where there is none."""
    word = condition.request.argv[0]
    if "/" in word:
        path = Path(condition.request.cwd or ".") / word
        return path if os.access(path, os.X_OK) and path.is_file() else None
    found = shutil.which(word, path=condition.request.env.set.get("PATH", os.environ.get("PATH")))
    return Path(found) if found else None


def fingerprints(plan: Plan) -> dict[str, str]:
    """Path → SHA-256 of every program that exists now."""
    paths = {path.resolve() for condition in plan.active() if (path := resolve(condition))}
    return {str(path): _sha256(path) for path in sorted(paths)}


def missing(plan: Plan) -> list[tuple[str, str]]:
    """Workloads whose program cannot be started, each with the error.

    Conditions with a set-up are exempt: it may create the program.
    """
    found = (
        (condition.workload_name, _why_missing(condition))
        for condition in plan.active()
        if not condition.setup and not plan.setup and resolve(condition) is None
    )
    return list(dict.fromkeys(found))


def _why_missing(condition: Condition) -> str:
    word = condition.request.argv[0]
    if "/" not in word:
        if " " in word:
            apart = ", ".join(f'"{part}"' for part in word.split())
            return f"cannot find the program {word}; its name has spaces: for a program with arguments write {apart}"
        return f"cannot find the program {word} in PATH; run: command -v {shlex.quote(word)}"
    path = Path(condition.request.cwd or ".") / word
    if path.is_dir():
        return f"cannot run {word}: it is a directory; name a file in it"
    if path.is_file():
        return f"cannot run {word}: it is not executable; run: chmod +x {quoted(path)}"
    return f"cannot find the program {word} (directory {condition.request.cwd}); run: ls -ld {quoted(path.parent)}"


def changed(before: dict[str, str]) -> list[str]:
    """The programs whose content has changed."""
    return [path for path, digest in before.items() if not Path(path).is_file() or _sha256(Path(path)) != digest]


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
