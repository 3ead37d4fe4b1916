"""Provenance: the facts about machine and software that a reader of a record needs."""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from .describe import describe
from .sysfs import Tree
from .virtual import container, virtualisation

SCHEMA = "pagelab.provenance/1"
_LIBRARIES = (
    "numpy",
    "scipy",
    "scikit-learn",
    "polars",
    "pydantic",
    "altair",
    "vl-convert-python",
    "typer",
    "rich",
    "jinja2",
)
_CPU = "/sys/devices/system/cpu"


def provenance(tree: Tree | None = None) -> dict[str, Any]:
    """The provenance as JSON-ready data; unreadable values are null. Values that can change are read at every call."""
    from datetime import UTC, datetime

    tree = tree or Tree.from_environment()
    return {
        "schema": SCHEMA,
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        **_fixed(str(tree.root)),
        "page_sizes_bytes": describe(tree)["page_sizes_bytes"],
        "governor": _governors(tree),
        "boost": _boost(tree),
        "smt": tree.get(f"{_CPU}/smt/control"),
        "swap": bool(_lines(tree, "/proc/swaps")[1:]),
        "uid": os.geteuid(),
    }


@cache
def _fixed(root: str) -> dict[str, Any]:
    tree = Tree(root)
    machine, box = virtualisation(tree), container(tree)
    return {
        "host": os.uname().nodename,
        "boot_id": tree.get("/proc/sys/kernel/random/boot_id"),
        "kernel": _kernel(tree),
        "cpu": _cpu(tree),
        "memory_bytes": _memory_bytes(tree),
        "mitigations": _mitigations(tree),
        "virtualisation": {"kind": machine.kind, "evidence": machine.evidence},
        "container": {"kind": box.kind, "evidence": box.evidence},
        "libc": _libc(),
        "pagelab": {"version": pagelab_version(), **_commit()},
        "python": sys.version.split()[0],
        "libraries": {name: found for name in _LIBRARIES if (found := _installed_version(name))},
    }


def _kernel(tree: Tree) -> dict[str, Any]:
    system = os.uname()
    return {
        "system": system.sysname,
        "release": system.release,
        "version": system.version,
        "architecture": system.machine,
        "cmdline": tree.get("/proc/cmdline"),
    }


def _cpu(tree: Tree) -> dict[str, Any]:
    """Facts of the first CPU; ``models`` counts the CPUs of each kind, since some machines mix them."""
    blocks = [_fields(block) for block in "\n".join(_lines(tree, "/proc/cpuinfo")).split("\n\n")]
    blocks = [block for block in blocks if "processor" in block]
    first = blocks[0] if blocks else {}
    models: dict[str, int] = {}
    for block in blocks:
        name = block.get("model name") or block.get("CPU part", "unknown")
        models[name] = models.get(name, 0) + 1
    return {
        "model_name": first.get("model name"),
        "vendor": first.get("vendor_id") or first.get("CPU implementer"),
        "family": _number(first.get("cpu family") or first.get("CPU architecture")),
        "model": _number(first.get("model") or first.get("CPU part")),
        "stepping": _number(first.get("stepping") or first.get("CPU revision")),
        "microcode": first.get("microcode") or tree.get(f"{_CPU}/cpu0/microcode/version"),
        "midr_el1": tree.get(f"{_CPU}/cpu0/regs/identification/midr_el1"),
        "address_sizes": first.get("address sizes"),
        "tlb_size": first.get("TLB size"),
        "models": models,
        "count": len(blocks),
    }


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _number(text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 0)
    except ValueError:
        return None


def _lines(tree: Tree, name: str) -> list[str]:
    try:
        return tree.text(name).splitlines()
    except OSError:
        return []


def _memory_bytes(tree: Tree) -> int | None:
    words = next((line.split() for line in _lines(tree, "/proc/meminfo") if line.startswith("MemTotal:")), [])
    return int(words[1]) * 1024 if len(words) > 1 else None


def _mitigations(tree: Tree) -> dict[str, str]:
    """Vulnerability → mitigation, for those that affect this CPU."""
    directory = f"{_CPU}/vulnerabilities"
    states = {name: tree.get(f"{directory}/{name}") for name in tree.names(directory)}
    return {name: state for name, state in states.items() if state and state != "Not affected"}


def _governors(tree: Tree) -> list[str]:
    directory = f"{_CPU}/cpufreq"
    found = {tree.get(f"{directory}/{name}/scaling_governor") for name in tree.names(directory)}
    return sorted(name for name in found if name)


def _boost(tree: Tree) -> bool | None:
    """Whether turbo frequencies are allowed; None if no driver reports that."""
    boost = tree.number(f"{_CPU}/cpufreq/boost")
    if boost is not None:
        return bool(boost)
    no_turbo = tree.number(f"{_CPU}/intel_pstate/no_turbo")
    return None if no_turbo is None else not no_turbo


def _libc() -> str | None:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (ValueError, OSError):
        return None


def pagelab_version() -> str | None:
    """The version of the installed distribution, or of the source tree that this runs from."""
    root = _source_root()
    if root is not None:
        found = re.search(r'^version\s*=\s*"([^"]+)"', (root / "pyproject.toml").read_text(), re.MULTILINE)
        if found:
            return found.group(1)
    return _installed_version("pagelab")


def _source_root() -> Path | None:
    root = Path(__file__).resolve().parents[3]
    project, package = root / "pyproject.toml", root / "src/pagelab"
    return root if os.access(project, os.R_OK) and os.access(package, os.R_OK) else None


def _installed_version(name: str) -> str | None:
    """A library's version from its ``.dist-info`` directory's name: importing it, or importlib.metadata, takes long."""
    found = _distribution(name)
    return None if found is None else found.name.removesuffix(".dist-info").rpartition("-")[2]


def _distribution(name: str) -> Path | None:
    wanted = re.compile(rf"{re.escape(name.replace('-', '_'))}-[^-]+\.dist-info", re.IGNORECASE)
    return next((entry for entry in _distributions() if wanted.fullmatch(entry.name)), None)


@cache
def _distributions() -> tuple[Path, ...]:
    found: list[Path] = []
    for directory in sys.path:
        # Zip files, missing directories and unreadable ones are skipped.
        with suppress(OSError):
            found += [entry for entry in Path(directory).iterdir() if entry.name.endswith(".dist-info")]
    return tuple(found)


def _commit() -> dict[str, str | None]:
    """The commit if known, and its ``source``: ``checkout`` (pagelab runs from it), ``installed from checkout`` (the
    checkout's present commit; the installed copy may be older) or ``package``.
    """
    root = _source_root()
    if root is not None:
        return {"commit": _head(root), "source": "checkout"}
    installed = _installed_from()
    commit = None if installed is None else _head(installed)
    return {"commit": commit, "source": "package" if commit is None else "installed from checkout"}


def _installed_from() -> Path | None:
    """The directory from which pip installed pagelab (PEP 610)."""
    distribution = _distribution("pagelab")
    try:
        url = "" if distribution is None else json.loads((distribution / "direct_url.json").read_text())["url"]
    except (OSError, ValueError, KeyError):
        return None
    return Path(unquote(url.removeprefix("file://"))) if url.startswith("file://") else None


def _head(root: Path) -> str | None:
    """The checked-out commit of a work tree, found without git."""
    git = root / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head
        reference = head.removeprefix("ref: ")
        if os.access(git / reference, os.R_OK):
            return (git / reference).read_text().strip()
        packed = (git / "packed-refs").read_text().splitlines()
        return next((line.split()[0] for line in packed if line.endswith(f" {reference}")), None)
    except OSError:
        return None
