"""The stored verdict of ``doctor --probe-colours``: ``colours.json`` in pagelab's state directory.

Root writes ``/var/lib/pagelab``, so that every user's runs have it; who is not root, ``$XDG_STATE_HOME/pagelab``
(``~/.local/state/pagelab``). ``PAGELAB_STATE_DIR`` names another directory in place of both.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import PagelabError
from ..sysfs import Tree

if TYPE_CHECKING:
    from .model import VerdictFile

VARIABLE = "PAGELAB_STATE_DIR"
NAME = "colours.json"
"""The file's name in each directory."""
_MACHINE_WIDE = Path("/var/lib/pagelab")


def directories() -> list[Path]:
    """Directories of verdicts, the user's own first."""
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
    """Where a probe's result of this name is kept: for root the machine's directory, for others their own."""
    known = directories()
    return (known[-1] if os.geteuid() == 0 else known[0]) / name


def write(path: Path, text: str, what: str, probe: str) -> None:
    """Writes a probe's result (a temporary file, renamed), for everybody to read; raises :class:`PagelabError`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(text + "\n")
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        raise PagelabError(
            f"cannot store {what} in {path}: {error.strerror} (errno {error.errno}); "
            f"name another directory: {VARIABLE}=DIR pagelab doctor {probe}"
        ) from error


def stored(caches: list[dict[str, Any]], tree: Tree | None = None) -> dict[str, Any] | None:
    """The newest verdict that was measured on this machine with these caches, as plain data for its description.

    A guest's host may lay out its memory anew whenever it starts, so there a verdict holds for one boot.
    """
    boot = (tree or Tree()).get("/proc/sys/kernel/random/boot_id")
    geometry = {(entry["level"], entry["size_bytes"], entry["ways"]) for entry in caches}
    identity = machine_hash(tree)
    valid = []
    for directory in directories():
        found = _read(directory / NAME)
        if found is None or found.machine != identity:
            continue
        same_caches = {(one.level, one.size_bytes, one.ways) for one in found.caches} <= geometry
        if same_caches and (found.virtualisation == "none" or found.boot_id == boot):
            valid.append(found)
    if not valid:
        return None
    newest = max(valid, key=lambda found: found.measured_at)
    return _plain(newest)


def _read(path: Path) -> VerdictFile | None:
    """``None`` where there is no file, or one that this version cannot read: it is then measured anew."""
    from .model import VerdictFile

    try:
        return VerdictFile.model_validate_json(path.read_bytes())
    except (OSError, ValueError):
        return None


def _plain(found: VerdictFile) -> dict[str, Any]:
    kept = {"level", "colours", "verdict", "reason", "masks"}
    return {
        "verdict": found.verdict.value,
        "measured_at": found.measured_at,
        "virtualisation": found.virtualisation,
        "caches": [cache.model_dump(mode="json", include=kept) for cache in found.caches],
    }


def machine_hash(tree: Tree | None = None) -> str:
    """16 hexadecimal digits of a hash of ``/etc/machine-id`` (machine-id(5) asks not to expose it), or of the name."""
    import hashlib
    import platform

    tree = tree or Tree()
    identity = tree.get("/etc/machine-id") or platform.node()
    return hashlib.sha256(f"pagelab colours {identity}".encode()).hexdigest()[:16]
