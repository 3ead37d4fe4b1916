"""Checks that the guest library is built in storeys: files of crates/preload import their own storey or lower ones.

Reads the `use` and `mod` declarations and the paths (`crate::`, `super::`, `self::`) of all sources but the tests.
Prints the imports that climb and the circles, and fails where there are more than ALLOWED says.
docs/architecture/guest.md has the drawing. Usage: python tools/storeys.py [directory of sources]
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "crates" / "preload" / "src"

STOREYS = ("boundary", "state", "given_back", "frames", "backing", "memory", "hooks", "start")
"""Modules of the crate, lowest first."""

ONLY_CALLER = {"frames": "backing"}
"""Storeys that one module alone may import."""

LARGEST_CIRCLE = 8
"""Files that may import each other in a circle: a room and its parts."""

ALLOWED: dict[tuple[str, str], str] = {}
"""Imports that climb all the same: (file, module) → why."""

Path_ = tuple[str, ...]

COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
LITERAL = re.compile(r'b?c?"(?:\\.|[^"\\])*"' + r"|b?'(?:\\.|[^'\\])'", re.S)
TEST = re.compile(r"#\[cfg\(test\)\]\s*(?:#\[[^\]]*\]\s*)*")
USE = re.compile(r"\buse\s+((?:crate|super|self)\b[^;]*);")
VISIBLE = re.compile(r"\bpub\s*\(\s*in\s[^)]*\)")
PART = re.compile(r"\bmod\s+(\w+)\s*;")
PATH = re.compile(r"\b((?:crate|super|self)(?:::\w+)+)")


@dataclass
class Source:
    """One file as a module: the other files that it imports, and those that are its parts."""

    imports: set[Path_] = field(default_factory=set)
    parts: set[Path_] = field(default_factory=set)


def end_of_item(text: str, start: int) -> int:
    """Where the item that begins at `start` ends: at its `;`, or behind its last brace."""
    depth = 0
    for at in range(start, len(text)):
        letter = text[at]
        if letter in "{([":
            depth += 1
        elif letter in "})]":
            depth -= 1
            if depth == 0 and letter == "}":
                return at + 1
        elif letter == ";" and depth == 0:
            return at + 1
    return len(text)


def without_tests(text: str) -> tuple[str, set[str]]:
    """`text` without comments, literals and items under #[cfg(test)]; and the names of tests in files of their own."""
    text = VISIBLE.sub("pub", LITERAL.sub('""', COMMENT.sub("", text)))
    modules: set[str] = set()
    while match := TEST.search(text):
        end = end_of_item(text, match.end())
        declared = re.match(r"(?:pub\s+)?mod\s+(\w+)\s*;", text[match.end() : end])
        if declared:
            modules.add(declared[1])
        text = text[: match.start()] + text[end:]
    return text, modules


def leaves(tree: str) -> Iterator[Path_]:
    """The paths of a use declaration: `a::{b, c::{self, d}}` has a::b, a::c and a::c::d."""
    tree = tree.strip()
    if "{" not in tree:
        parts = tuple(re.sub(r"\s+as\s+\w+$", "", tree).split("::"))
        yield parts[:-1] if parts[-1] in ("self", "*") and len(parts) > 1 else parts
        return
    head, _, rest = tree.partition("{")
    prefix = tuple(part for part in head.strip().split("::") if part)
    depth, begin = 0, 0
    body = rest[: rest.rindex("}")]
    for at, letter in enumerate(body + ","):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if body[begin:at].strip():
                for leaf in leaves(body[begin:at]):
                    yield prefix if leaf == ("self",) else prefix + leaf
            begin = at + 1


def absolute(path: Path_, module: Path_) -> Path_:
    """`path`, as written in `module`, from the crate's root."""
    if path[0] == "crate":
        return path[1:]
    base = module
    while path and path[0] in ("super", "self"):
        base = base[:-1] if path[0] == "super" else base
        path = path[1:]
    return base + path


def read(root: Path) -> dict[Path_, Source]:
    """All sources below `root` but tests, with their imports."""
    texts: dict[Path_, str] = {}
    tests: set[Path_] = set()
    for file in sorted(root.rglob("*.rs")):
        relative = file.relative_to(root).with_suffix("").parts
        module = () if relative == ("lib",) else relative
        text, test_modules = without_tests(file.read_text(encoding="utf-8"))
        texts[module] = text
        tests |= {(*module, name) for name in test_modules}
    sources = {module: Source() for module in texts if module not in tests}
    for module, source in sources.items():
        text = texts[module]
        source.parts = {(*module, match[1]) for match in PART.finditer(text)} & sources.keys()
        found = [leaf for match in USE.finditer(text) for leaf in leaves(match[1])]
        found += [tuple(match[1].split("::")) for match in PATH.finditer(USE.sub("", text))]
        for path in found:
            target = absolute(path, module)
            while target not in sources and target:
                target = target[:-1]
            if target not in ((), module):
                source.imports.add(target)
    return sources


def circles(arrows: dict[Path_, set[Path_]]) -> list[list[Path_]]:
    """Groups that reach each other, largest first: Tarjan's strongly connected components of more than one node."""
    index: dict[Path_, int] = {}
    low: dict[Path_, int] = {}
    stack: list[Path_] = []
    found: list[list[Path_]] = []

    def visit(node: Path_) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in sorted(arrows[node]):
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            group = stack[stack.index(node) :]
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(sorted(group))

    for node in sorted(arrows):
        if node not in index:
            visit(node)
    return sorted(found, key=len, reverse=True)


def height(module: Path_) -> int:
    """The storey of a module; what belongs to none lies above all."""
    return STOREYS.index(module[0]) if module[0] in STOREYS else len(STOREYS)


def name(module: Path_) -> str:
    """As it is written in the sources."""
    return "::".join(module)


def check(root: Path) -> list[str]:
    """Prints what there is; returns what must not be."""
    sources = read(root)
    arrows = {module: source.imports for module, source in sources.items() if module}
    faults = [f"{top} is no storey" for top in sorted({module[0] for module in arrows} - set(STOREYS))]
    climbing = [(a, b) for a in sorted(arrows) for b in sorted(arrows[a]) if height(b) > height(a)]
    rooms = {frozenset((a[0], b[0])) for a, b in climbing if a[0] != b[0]}
    for a, b in climbing:
        reason = ALLOWED.get((name(a), name(b)))
        print(f"climbs: {name(a)} → {name(b)}" + (f" (allowed: {reason})" if reason else ""))
        if reason is None:
            faults.append(f"{name(a)} imports {name(b)}, which lies higher")
    stale = set(ALLOWED) - {(name(a), name(b)) for a, b in climbing}
    faults += [f"ALLOWED lists {a} → {b}, which is no more" for a, b in sorted(stale)]
    for module, imports in sorted(arrows.items()):
        for top in {target[0] for target in imports} - {module[0]}:
            if ONLY_CALLER.get(top, module[0]) != module[0]:
                faults.append(f"{name(module)} imports {top}, which {ONLY_CALLER[top]} alone may")
    groups = circles({module: source.imports | source.parts for module, source in sources.items() if module})
    for group in groups:
        print(f"circle of {len(group)} files: {', '.join(map(name, group))}")
        if len(group) > LARGEST_CIRCLE:
            faults.append(f"a circle of {len(group)} files: {name(group[0])} … {name(group[-1])}")
    tops: dict[Path_, set[Path_]] = {module[:1]: set() for module in arrows}
    for module, imports in arrows.items():
        tops[module[:1]] |= {target[:1] for target in imports} - {module[:1]}
    for group in circles(tops):
        faults.append(f"a circle of {len(group)} top-level modules: {', '.join(map(name, group))}")
    total = sum(len(imports) for imports in arrows.values())
    largest = len(groups[0]) if groups else 0
    print(
        f"{len(arrows)} files, {total} imports, {len(climbing)} climbing ({len(rooms)} between storeys), "
        f"largest circle {largest} files, {sum(map(len, circles(tops)))} top-level modules in circles"
    )
    return faults


def main() -> int:
    """Exit code 1 and a line for each fault, or 0."""
    faults = check(Path(sys.argv[1]) if len(sys.argv) > 1 else SOURCES)
    for fault in faults:
        print(f"storeys: {fault}", file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
