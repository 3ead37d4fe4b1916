"""Stores the verdict of ``doctor --probe-colours``: ``colours.json`` in pagelab's state directory.

Root writes to ``/var/lib/pagelab``, for every user's runs; other users to ``$XDG_STATE_HOME/pagelab``
(``~/.local/state/pagelab``). ``PAGELAB_STATE_DIR`` replaces both.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

from ... import foreign_files, whole_file
from ...errors import PagelabError
from ..sysfs import Tree

if TYPE_CHECKING:
    from .model import VerdictFile

VARIABLE = "PAGELAB_STATE_DIR"
SCHEMA = "pagelab.colours/1"
NAME = "colours.json"
"""The file's name in each directory."""
_MACHINE_WIDE = Path("/var/lib/pagelab")


def directories() -> list[Path]:
    """Directories to read verdicts from, the user's own first."""
    override = os.environ.get(VARIABLE)
    if override:
        return [Path(override)]
    home = os.environ.get("XDG_STATE_HOME")
    own = Path(home or os.path.expanduser("~/.local/state"))  # noqa: PTH111 (a user without a home is no error)
    return [own / "pagelab", _MACHINE_WIDE]


def store(found: VerdictFile) -> Path:
    """Writes the verdict and returns its path; raises :class:`PagelabError`."""
    path = place(NAME)
    write(path, found.model_dump_json(by_alias=True, indent=1), "the verdict", "--probe-colours")
    return path


def place(name: str) -> Path:
    """The path to which a probe's result is written: for root in the machine's directory, for others in their own."""
    known = directories()
    return (known[-1] if os.geteuid() == 0 else known[0]) / name


def write(path: Path, text: str, what: str, probe: str) -> None:
    """Writes a probe's result, readable by everybody; raises :class:`PagelabError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        whole_file.put(path, text + "\n", mode=0o644)
    except OSError as error:
        raise PagelabError(
            f"cannot store {what} in {path}: {error.strerror} (errno {error.errno}); "
            f"name another directory: {VARIABLE}=DIR pagelab doctor {probe}"
        ) from error


def stored(caches: list[dict[str, Any]], tree: Tree | None = None) -> dict[str, Any] | None:
    """The newest verdict measured on this machine with these caches, as plain data for the machine description.

    In a guest a verdict holds for one boot, since the host may lay out its memory differently at each start.
    """
    boot = (tree or Tree()).get("/proc/sys/kernel/random/boot_id")
    geometry = {(entry["level"], entry["size_bytes"], entry["ways"]) for entry in caches}
    valid = []
    for directory in directories():
        found = _read(directory / NAME)
        if found is None or found["machine"] != machine_hash(tree):
            continue
        same_caches = {(one["level"], one["size_bytes"], one["ways"]) for one in found["caches"]} <= geometry
        if same_caches and (found["virtualisation"] == "none" or found["boot_id"] == boot):
            valid.append(found)
    if not valid:
        return None
    newest = max(valid, key=lambda found: str(found["measured_at"]))
    kept = {name: newest[name] for name in ("verdict", "measured_at", "virtualisation")}
    return {**kept, "caches": [{name: cache[name] for name in _OF_CACHE} for cache in newest["caches"]]}


_OF_FILE: dict[str, Any] = {
    "schema": str,
    "verdict": str,
    "measured_at": str,
    "machine": str,
    "virtualisation": str,
    "boot_id": (str, NoneType),
    "caches": list,
}
_OF_CACHE: dict[str, Any] = {"level": int, "colours": int, "verdict": str, "reason": str, "masks": list}
_OF_GEOMETRY: dict[str, Any] = {"size_bytes": int, "ways": int}


def _read(path: Path) -> dict[str, Any] | None:
    """The file's verdict; ``None`` if there is no file, or none that this version can read.

    Every run reads it before its program starts, so it is read without the pydantic model, which is slow to import.
    """
    import json

    try:
        found = json.loads(foreign_files.read(path))
    except (OSError, ValueError):
        return None
    if not _has(found, _OF_FILE) or found["schema"] != SCHEMA:
        return None
    return found if all(_has(cache, {**_OF_CACHE, **_OF_GEOMETRY}) for cache in found["caches"]) else None


def _has(found: Any, kinds: dict[str, Any]) -> bool:
    return isinstance(found, dict) and all(
        name in found and isinstance(found[name], kind) for name, kind in kinds.items()
    )


def machine_hash(tree: Tree | None = None) -> str:
    """16 hex digits of a hash of ``/etc/machine-id`` (which machine-id(5) asks not to expose), else of the name."""
    tree = tree or Tree()
    identity = tree.get("/etc/machine-id") or os.uname().nodename
    return _sha256(f"pagelab colours {identity}".encode())[:16]


def _sha256(data: bytes) -> str:
    """SHA-256 in hexadecimal, by the interpreter's own module if it has one, since hashlib loads OpenSSL."""
    from importlib import import_module

    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            return str(import_module(name).sha256(data).hexdigest())
        except ImportError:
            continue
    raise ImportError("this interpreter has no SHA-256")
