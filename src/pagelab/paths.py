"""Paths of pagelab's installed native parts."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from pagelab.errors import PagelabError


class MissingPartError(PagelabError):
    """A part of the installation is missing; the message names it and the command that installs it."""


def library() -> Path:
    """The preload library ``libpagelab``; raises :class:`MissingPartError`."""
    override = os.environ.get("PAGELAB_LIBRARY")
    if override:
        return Path(override)
    found = sorted(Path(__file__).parent.glob("libpagelab.*so"))
    if not found:
        raise MissingPartError(
            f"cannot find libpagelab.so beside {Path(__file__).parent}; run: pip install . (from a checkout: make dev)"
        )
    return found[0]


def qemu_plugin() -> Path:
    """The plugin that captures traces in QEMU (crates/qemu); raises :class:`MissingPartError`."""
    override = os.environ.get("PAGELAB_QEMU_PLUGIN")
    if override:
        return Path(override)
    found = sorted(Path(__file__).parent.glob("libpagelab_qemu*.so"))
    if not found:
        raise MissingPartError(
            f"cannot find libpagelab_qemu.so beside {Path(__file__).parent}; run: pip install . "
            "(from a checkout: make dev)"
        )
    return found[0]


def include() -> Path:
    """The directory of ``pagelab.h``, ``pagelab_kernel.c`` and ``pagelab_strategy.h``, for a C compiler (docs/api)."""
    return Path(__file__).parent / "include"


def launcher() -> Path:
    """The native launcher ``pagelab-launch``; raises :class:`MissingPartError`."""
    return _binary("pagelab-launch", "PAGELAB_LAUNCHER")


def workload() -> Path:
    """The bundled workloads ``pagelab-workload``; raises :class:`MissingPartError`."""
    return _binary("pagelab-workload", "PAGELAB_WORKLOAD")


def bundled(argv: Sequence[str]) -> list[str]:
    """``pagelab-workload`` by its full path, so that it need not be on PATH; other commands as they are."""
    if not argv or argv[0] != "pagelab-workload":
        return list(argv)
    try:
        return [str(workload()), *argv[1:]]
    except MissingPartError:
        return list(argv)


def _binary(name: str, override_variable: str) -> Path:
    override = os.environ.get(override_variable)
    if override:
        return Path(override)
    beside = Path(sys.executable).parent / name
    if beside.exists():
        return beside
    import shutil

    on_path = shutil.which(name)
    if on_path is None:
        raise MissingPartError(f"cannot find {name} beside {sys.executable} or on PATH; run: pip install .")
    return Path(on_path)
