"""Defines probes: each examines one property of the machine and returns data; a failure does not affect others."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from .describe import describe
from .sysfs import Tree
from .virtual import Container, Virtualisation, container, in_first_user_namespace, virtualisation

Status = Literal["ok", "degraded", "absent", "denied", "unsupported", "unknown"]
"""``absent``: possible here, but not set up; ``denied``: present, but not for this process; ``unsupported``: this
kernel or hardware lacks it; ``degraded``: works with restrictions; ``unknown``: could not be determined."""


@dataclass(frozen=True)
class Finding:
    """A probe's result. ``needs``: the command or change that would make it ``ok``."""

    status: Status
    text: str
    value: Any = None
    needs: str | None = None


@dataclass(frozen=True)
class Probe:
    """A finding with its name and purpose; an entry of ``doctor --json``."""

    name: str
    group: str
    status: Status
    text: str
    why: str
    value: Any = None
    needs: str | None = None


@dataclass
class Context:
    """The input of probes: the tree of setting files, and this process."""

    tree: Tree = field(default_factory=Tree.from_environment)
    pagelab: str = ""

    def __post_init__(self) -> None:
        self.pagelab = self.pagelab or own_command()

    @cached_property
    def machine(self) -> dict[str, Any]:
        """The machine description."""
        return describe(self.tree)

    @cached_property
    def container(self) -> Container:
        """Whether this process runs in a container, and in which kind."""
        return container(self.tree)

    @cached_property
    def virtualisation(self) -> Virtualisation:
        """Whether this is a virtual machine, and of which kind."""
        return virtualisation(self.tree)

    @cached_property
    def sees_sysfs(self) -> bool:
        """Whether the kernel's part of /sys is visible; a chroot or a sandbox may have none."""
        return self.tree.exists("/sys/kernel/mm")

    @cached_property
    def is_real_root(self) -> bool:
        """Whether this process is root of the machine, not of a user namespace only."""
        return os.geteuid() == 0 and in_first_user_namespace(self.tree)

    @cached_property
    def own_capabilities(self) -> bool:
        """Whether this process's capabilities are valid on the machine, not in a user namespace only."""
        return in_first_user_namespace(self.tree)

    def on_host(self, command: str) -> str:
        """The command, with the place to type it (in a container: on the host)."""
        return f"on the host: {command}" if self.container.kind != "none" else command

    def fix(self, *settings: str) -> str:
        """The command that makes these settings, with the place to type it."""
        return self.on_host(f"sudo {self.pagelab} doctor --fix {' '.join(settings)}")

    def as_root(self, what: str) -> str:
        """Advice for a user without the rights."""
        if self.container.kind != "none":
            return f"give the container {what}; see: {self.pagelab} doctor --print {self.print_kind}"
        return f"run as root: sudo {self.pagelab} …; or with {what}"

    @property
    def print_kind(self) -> str:
        """The value of ``--print`` for this container."""
        known = ("docker", "podman", "kubernetes")
        return self.container.kind if self.container.kind in known else "docker"


@dataclass(frozen=True)
class Question:
    """A named probe function."""

    name: str
    group: str
    why: str
    ask: Callable[[Context], Finding | list[tuple[str, Finding]]]
    """Returns one finding, or several with name suffixes (one per cache or pool)."""

    def answer(self, context: Context) -> list[Probe]:
        """Runs the probe. Never raises: a failing probe returns its error as a finding."""
        try:
            found = self.ask(context)
        except OSError as error:
            what = f"{error.filename}: " if error.filename else ""
            found = Finding("unknown", f"cannot be found out: {what}{error.strerror}")
        except Exception as error:
            found = Finding("unknown", f"the probe failed: {type(error).__name__}: {error}")
        answers = [("", found)] if isinstance(found, Finding) else found
        return [
            Probe(f"{self.name}{suffix}", self.group, one.status, one.text, self.why, one.value, one.needs)
            for suffix, one in answers
        ]


def own_command() -> str:
    """The command to call pagelab from a shell: ``pagelab`` if sudo finds it too, else its full path."""
    started = Path(sys.argv[0])
    found = shutil.which("pagelab", path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    if started.name != "pagelab" or found:
        return "pagelab"
    return os.path.abspath(started)  # noqa: PTH100 (a resolved link would leave the virtual environment)
