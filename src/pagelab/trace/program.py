"""Finds the ELF file that an emulator runs (scripts name interpreters), and the emulator of its architecture."""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pagelab.errors import BadInputError, MachineError

_TARGETS = {62: "x86_64", 183: "aarch64", 243: "riscv64"}
_INTERPRETERS = 5  # the kernel follows as many


@dataclass(frozen=True)
class Program:
    """A program as an emulator takes it."""

    target: str
    """Architecture, as it is written in the emulator's name."""
    file: str
    """The ELF file."""
    argv: tuple[str, ...]
    """Its arguments, its own name first."""


def resolve(argv: Sequence[str]) -> Program:
    """The ELF program that a command runs. Raises :class:`~pagelab.errors.BadInputError`."""
    if not argv:
        raise BadInputError("nothing to trace: pagelab trace -- CMD")
    found = shutil.which(argv[0])
    if found is None:
        raise BadInputError(f"cannot trace {argv[0]}: not found, or not executable; give its path")
    file, arguments = found, [argv[0], *argv[1:]]
    for _ in range(_INTERPRETERS):
        with Path(file).open("rb") as stream:
            head = stream.read(256)
        if not head.startswith(b"#!"):
            return Program(_target(file, head), file, tuple(arguments))
        words = os.fsdecode(head[2:].split(b"\n")[0]).strip().split(None, 1)
        if not words:
            break
        arguments = [words[0], *(word.strip() for word in words[1:]), file, *arguments[1:]]
        file = words[0]
    raise BadInputError(f"cannot trace {argv[0]}: its interpreter cannot be found in its first line")


def _target(file: str, head: bytes) -> str:
    if head[:6] != b"\x7fELF\x02\x01" or len(head) < 20:
        raise BadInputError(f"cannot trace {file}: not a 64-bit little-endian ELF program")
    (machine,) = struct.unpack_from("<H", head, 18)
    if machine not in _TARGETS:
        raise BadInputError(f"cannot trace {file}: architecture {machine} is none of {', '.join(_TARGETS.values())}")
    return _TARGETS[machine]


def emulator(target: str) -> str:
    """QEMU's user-mode emulator for an architecture. Raises :class:`~pagelab.errors.MachineError`."""
    name = f"qemu-{target}"
    found = shutil.which(name)
    if found is None:
        raise MachineError(f"cannot find {name}; run: sudo apt install qemu-user (or trace with --way lackey)")
    return found
