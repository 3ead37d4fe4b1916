"""Reads Rust sources for the measurements: code without comments, texts and tests, and imports between modules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

NOT_CODE = re.compile(
    r"//[^\n]*"
    r"|(?P<block>/\*)"
    r'|b?c?r(?P<hashes>#*)".*?"(?P=hashes)'
    r'|[bc]?"(?:\\.|[^"\\])*"'
    r"|b?'(?:\\(?:x..|u\{[^}]*\}|.)|[^\\'\n])'",
    re.DOTALL,
)
TEST_ATTRIBUTE = re.compile(r"#\s*\[\s*(?:cfg\s*\(\s*(?:all\s*\(\s*)?test\b|test\s*\])[^\n]*")
MODULE = re.compile(r"\bmod\s+(\w+)\s*;")
FUNCTION = re.compile(r"\bfn\s+(\w+)")
UNSAFE_BLOCK = re.compile(r"\bunsafe\s*\{")
USE = re.compile(r"\b(?P<public>pub(?:\([^)]*\))?\s+)?use\s+(?P<tree>[^;]*);")
PATH = re.compile(r"(?<![\w:])(\w+(?:\s*::\s*\w+)+)")


def masked(text: str) -> str:
    """The text with comments, and the contents of strings and characters, as spaces; lines stay where they are."""
    kept: list[str] = []
    at = 0
    while found := NOT_CODE.search(text, at):
        end = _block_end(text, found.start()) if found["block"] else found.end()
        gone = text[found.start() : end]
        blank = re.sub(r"[^\n]", " ", gone)
        if not gone.startswith(("//", "/*")):  # something stands there: a line of only a text is a line of code
            blank = "'" + blank[1:-1] + "'"
        kept += [text[at : found.start()], blank]
        at = end
    return "".join([*kept, text[at:]])


def _block_end(text: str, start: int) -> int:
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[start:]):
        depth += 1 if mark[0] == "/*" else -1
        if depth == 0:
            return start + mark.end()
    return len(text)


def item_end(code: str, start: int) -> int:
    """The end of the item that begins at or after ``start``: its ``;`` or the end of its braces."""
    depth = 0
    for mark in re.finditer(r"[;(){}\[\]]", code[start:]):
        depth += (mark[0] in "({[") - (mark[0] in ")}]")
        if depth == 0 and mark[0] in ";}":
            return start + mark.end()
        if depth < 0:  # the last field or variant of what is around it
            return start + mark.start()
    return len(code)


def without_tests(code: str) -> tuple[str, list[str]]:
    """Masked code with its test items as spaces, and the names of the modules that only tests have."""
    test_modules: list[str] = []
    at = 0
    while found := TEST_ATTRIBUTE.search(code, at):
        attribute_end = code.index("]", found.start()) + 1
        while (more := re.compile(r"\s*#\s*\[[^\]]*\]").match(code, attribute_end)) is not None:
            attribute_end = more.end()
        end = item_end(code, attribute_end)
        gone = code[found.start() : end]
        test_modules += MODULE.findall(gone)
        code = code[: found.start()] + re.sub(r"[^\n]", " ", gone) + code[end:]
        at = end
    return code, test_modules


def use_tree(tree: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """The paths of one ``use`` with the name each gets here (``*`` for all of a module)."""
    tree = tree.strip()
    head, brace, rest = tree.partition("{")
    prefix = tuple(re.findall(r"\w+", head)) if brace else ()
    if not brace:
        path_text, _, renamed = tree.partition(" as ")
        path = tuple(re.findall(r"\w+|\*", path_text))
        if path and path[-1] == "self":
            path = path[:-1] or path
        if path:
            yield path, renamed.strip() or path[-1]
        return
    depth, piece = 0, ""
    for letter in rest[: rest.rindex("}")] + ",":
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            for path, name in use_tree(piece):
                yield (prefix, prefix[-1]) if path == ("self",) else (prefix + path, name)
            piece = ""
        else:
            piece += letter
    return


@dataclass
class Module:
    """One file of a crate. ``name``: its path in the crate, ``("a", "b")`` for ``crate::a::b``."""

    name: tuple[str, ...]
    path: Path
    code: str
    children: list[str] = field(default_factory=list)

    @cached_property
    def uses(self) -> list[tuple[bool, tuple[str, ...], str]]:
        """For each ``use``: whether it is public, the path, and the name that it gets here."""
        return [
            (found["public"] is not None, path, name)
            for found in USE.finditer(self.code)
            for path, name in use_tree(found["tree"])
        ]


def modules(root: Path) -> list[Module]:
    """The product's modules under a crate's ``lib.rs`` or ``main.rs``, without those of tests."""
    return list(_modules(root, (), root.parent))


def _modules(path: Path, name: tuple[str, ...], folder: Path) -> Iterator[Module]:
    code, tests_only = without_tests(masked(path.read_text()))
    declared = [child for child in MODULE.findall(code) if child not in tests_only]
    yield Module(name, path, code, declared)
    for child in declared:
        for file in (folder / f"{child}.rs", folder / child / "mod.rs"):
            if file.exists():
                yield from _modules(file, (*name, child), folder / child)


@dataclass
class Crate:
    """The modules under one root, and their imports."""

    by_name: dict[tuple[str, ...], Module]

    @classmethod
    def read(cls, root: Path) -> Crate:
        return cls({module.name: module for module in modules(root)})

    def graph(self) -> dict[str, set[str]]:
        """``a::b`` → the modules whose items it names.

        An item that a module offers for another (``pub use``) is the other's; to offer what lies inside is no import.
        """
        return {_shown(module.name): {_shown(name) for name in self._imports(module)} for module in self}

    def __iter__(self) -> Iterator[Module]:
        return iter(self.by_name.values())

    def _imports(self, module: Module) -> set[tuple[str, ...]]:
        aliases = {name: path for _, path, name in module.uses if name != "*"}
        found = {self._target(module, path) for _, path, _ in module.uses}
        for mentioned in PATH.findall(USE.sub("", module.code)):
            first, *rest = re.findall(r"\w+", mentioned)
            found.add(self._target(module, (*aliases.get(first, (first,)), *rest)))
        offered = {self._target(module, path) for public, path, _ in module.uses if public}
        own = {name for name in offered if name is not None and name[: len(module.name)] == module.name}
        return {name for name in found - own if name is not None and name != module.name}

    def _target(self, module: Module, path: tuple[str, ...], depth: int = 0) -> tuple[str, ...] | None:
        """The module of a path's item; None outside of the crate."""
        here, rest = module.name, list(path)
        if rest[0] == "crate":
            here, rest = (), rest[1:]
        elif rest[0] in ("self", "super"):
            while rest and rest[0] in ("self", "super"):
                here = here[:-1] if rest.pop(0) == "super" else here
        elif rest[0] not in module.children:
            return None
        while rest and (*here, rest[0]) in self.by_name:
            here = (*here, rest.pop(0))
        if rest and depth < 8 and here in self.by_name and here != module.name:
            for public, exported, name in self.by_name[here].uses:
                if public and name == rest[0]:
                    return self._target(self.by_name[here], exported, depth + 1)
        return here if here in self.by_name else None


def _shown(name: tuple[str, ...]) -> str:
    return "::".join(name) or "crate"


def functions(code: str) -> Iterator[tuple[str, int]]:
    """Every function with a body in masked code, and its lines from ``fn`` to its last brace."""
    for found in FUNCTION.finditer(code):
        end = item_end(code, found.start())
        if code[end - 1] == "}":
            yield found[1], code.count("\n", found.start(), end) + 1


def unsafe_blocks(code: str) -> int:
    """Number of ``unsafe { … }`` blocks in masked code (not functions, implementations or traits)."""
    return len(UNSAFE_BLOCK.findall(code))
