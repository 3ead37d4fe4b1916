"""Policies: where a program's pages lie, their sizes, and when they are fetched.

The Rust crate ``policy`` reads and checks policies; this module adds Python types. The functions take the description
of the machine that the policy is for (``pagelab.machine.describe()``). Without one, a policy is checked against a
machine that offers everything.

>>> parse('pages = "2M"', "p.toml").name
'pages=2M'
>>> from_flags(Flags(pages=["heap=2M"])).rules[0].memory
('heap',)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from . import _native
from .errors import BadInputError
from .spelling import meant

Machine = Mapping[str, Any]
"""A machine description in the form of :func:`pagelab.machine.describe`."""


class PolicyError(BadInputError, ValueError):
    """A policy that is refused before anything runs.

    ``file`` is a path, or the flag as it was typed. ``line`` counts from 1 (``None`` for flags). ``allowed`` lists the
    accepted values, if possible. ``next`` is the next step, a command if there is one.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str,
        line: int | None = None,
        allowed: Sequence[str] = (),
        next: str | None = None,  # noqa: A002 (as the native part's errors name it)
    ) -> None:
        place = file if line is None else f"{file}:{line}"
        text = f"{place}: {message}"
        if allowed:
            unknown = re.match(r"unknown (?:key|value) [`\"]([^`\"]+)[`\"]", message)
            guess = meant(unknown[1], allowed) if unknown else ""
            text += f"{guess} Allowed" if guess else "; allowed"
            text += f": {', '.join(allowed)}"
        if next:
            text += f"; {next}"
        super().__init__(text)
        self.message = message
        self.file = file
        self.line = line
        self.allowed = tuple(allowed)
        self.next = next


@dataclass(frozen=True)
class Interval:
    """Bytes ``[start, end)`` of a pool and the size of the pages that back them."""

    start_bytes: int
    end_bytes: int
    page_bytes: int


@dataclass(frozen=True)
class Mosaic:
    """Intervals with page sizes, sorted and disjoint; outside of them pages have ``otherwise_bytes`` (``None``: the
    kernel chooses)."""

    intervals: tuple[Interval, ...]
    otherwise_bytes: int | None


Pages = int | Mosaic | None
"""Axis ``pages``: one size in bytes, a mosaic, or ``None`` for the kernel's choice."""


@dataclass(frozen=True)
class Rule:
    """A rule of a policy. ``memory`` is ``("all",)`` for every kind; it is empty if the rule is for a ``range``."""

    memory: tuple[str, ...]
    range: tuple[int, int] | None
    at_least_bytes: int | None
    names: frozenset[str]
    """The axes that the rule decides: some of ``frames``, ``pages``, ``fetch``."""
    frames: str
    pages: Pages
    via: str | None
    fetch: str


@dataclass(frozen=True)
class Policy:
    """A validated policy; ``toml`` is its canonical form, which is the same for equal policies."""

    name: str
    toml: str
    is_kernel: bool
    """Whether the policy leaves every axis of all memory to the kernel."""
    frames: str
    pages: Pages
    via: str
    fetch: str
    backend: str
    """What places frames: ``library``, ``kernel`` or ``auto``."""
    inherit_fork: bool
    inherit_exec: bool
    rules: tuple[Rule, ...]
    document: Mapping[str, Any] = field(repr=False, compare=False)
    """The whole policy in the JSON form of the Rust crate."""

    @property
    def governs_frames(self) -> bool:
        """Whether any memory has a strategy that places its frames."""
        return self.frames != "kernel" or any(rule.frames != "kernel" for rule in self.rules)

    @property
    def needs_library(self) -> bool | None:
        """Whether the preload library has work under the policy; ``None``: it has, unless the kernel places the frames
        (``backend = "auto"``).
        """
        pages = (self.pages, *(rule.pages for rule in self.rules))
        fetch = (self.fetch, *(rule.fetch for rule in self.rules))
        if any(one is not None for one in pages) or any(one != "kernel" for one in fetch):
            return True
        if not self.governs_frames or self.backend == "kernel":
            return False
        return None if self.backend == "auto" else True

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical TOML, in hexadecimal."""
        return hashlib.sha256(self.toml.encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class Flags:
    """Policy flags as they are typed: ``["2M", "heap=0-64M:2M"]``; ``layout`` is the path of a Mosalloc CSV."""

    name: str | None = None
    frames: Sequence[str] = ()
    pages: Sequence[str] = ()
    fetch: Sequence[str] = ()
    via: str | None = None
    backend: str | None = None
    layout: Path | None = None
    inherit_fork: bool | None = None
    inherit_exec: bool | None = None


def parse(text: str, path: str, machine: Machine | None = None) -> Policy:
    """A policy from TOML. ``path`` appears in messages; files that the policy names (layouts, saved maps, modules) are
    looked up beside it.

    Raises :class:`PolicyError`.
    """
    return _policy(lambda: _native.parse_policy(text, path, _json(machine)))


def load(path: Path | str, machine: Machine | None = None) -> Policy:
    """A policy from a TOML file, or from a Mosalloc layout if the name ends in ``.csv``.

    Raises :class:`PolicyError`, also if the file cannot be read.
    """
    text = _read(Path(path))
    if Path(path).suffix.lower() == ".csv":
        return from_layout(text, str(path), machine)
    return parse(text, str(path), machine)


def from_flags(flags: Flags, machine: Machine | None = None, base: Path | str | None = None) -> Policy:
    """A policy from flags. With ``base``, a TOML file, the flags override the file.

    Raises :class:`PolicyError`.
    """
    document = asdict(flags)
    document |= {key: list(document[key]) for key in ("frames", "pages", "fetch")}
    if flags.layout is not None:
        document["layout"] = {"path": str(flags.layout), "text": _read(flags.layout)}
    base_toml = None if base is None else _read(Path(base))
    base_path = None if base is None else str(base)
    return _policy(lambda: _native.policy_from_flags(json.dumps(document), _json(machine), base_toml, base_path))


def from_layout(text: str, path: str, machine: Machine | None = None) -> Policy:
    """A policy from the text of a Mosalloc layout (MOSAIC), named after its file. Raises :class:`PolicyError`."""
    return _policy(lambda: _native.policy_from_csv(text, path, _json(machine)))


def check_runnable(policy: Policy, machine: Machine) -> None:
    """Raises :class:`PolicyError` if ``policy`` cannot run on ``machine``."""
    try:
        _native.check_policy(policy.toml, f"policy {policy.name!r}", _json(machine))
    except _native.PolicyRefused as refused:
        _raise(refused)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise PolicyError(f"cannot read the file: {error.strerror}", file=str(path)) from error
    except UnicodeDecodeError as error:
        raise PolicyError(f"the file is not UTF-8 text: {error.reason}", file=str(path)) from error


def _json(machine: Machine | None) -> str | None:
    return None if machine is None else json.dumps(machine)


def _policy(parse: Any) -> Policy:
    try:
        parsed = json.loads(parse())
    except _native.PolicyRefused as refused:
        _raise(refused)
    document = parsed["policy"]
    return Policy(
        name=document["name"],
        toml=parsed["toml"],
        is_kernel=parsed["is_kernel"],
        frames=document["frames"]["strategy"]["kind"],
        pages=_pages(document["pages"]),
        via=document["via"],
        fetch=document["fetch"],
        backend=document["backend"],
        inherit_fork=document["inherit"]["fork"],
        inherit_exec=document["inherit"]["exec"],
        rules=tuple(_rule(rule) for rule in document["rules"]),
        document=document,
    )


def _rule(document: dict[str, Any]) -> Rule:
    scope = document["scope"]
    memory: tuple[str, ...] = ("all",) if scope == "all" else tuple(scope.get("memory", ()))
    bounds = None if scope == "all" or "range" not in scope else scope["range"]
    frames = document["frames"]
    return Rule(
        memory=memory,
        range=None if bounds is None else (bounds["start"], bounds["end"]),
        at_least_bytes=document["at_least"],
        names=frozenset(axis for axis in ("frames", "pages", "fetch") if document[axis] is not None),
        frames="kernel" if frames is None else frames["strategy"]["kind"],
        pages=_pages(document["pages"]),
        via=document["via"],
        fetch=document["fetch"] or "kernel",
    )


def _pages(document: Any) -> Pages:
    if document is None or document == "kernel":
        return None
    if "size" in document:
        size: int = document["size"]
        return size
    mosaic = document["mosaic"]
    intervals = tuple(Interval(tile["start"], tile["end"], tile["size"]) for tile in mosaic["tiles"])
    otherwise = mosaic["otherwise"]
    return Mosaic(intervals, None if otherwise == "kernel" else otherwise["size"])


def _raise(refused: _native.PolicyRefused) -> NoReturn:
    error = json.loads(refused.args[0])
    place = error["place"]
    raise PolicyError(
        error["message"], file=place["source"], line=place["line"], allowed=error["allowed"], next=error["next"]
    ) from None
