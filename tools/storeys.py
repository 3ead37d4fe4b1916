"""Checks that the guest library is built in storeys: files of crates/preload import their own storey or lower ones.

Reads the `use` and `mod` declarations and the paths (`crate::`, `super::`, `self::`) of all sources but the tests.
Prints the imports that climb and the circles, and fails if there are more than ALLOWED.
docs/architecture/guest.md has the drawing. Usage: python -m tools.storeys [directory of sources]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from tools.circles import circles, folded
from tools.rust_source import USE, Module, modules

SOURCES = Path(__file__).resolve().parent.parent / "crates" / "preload" / "src"

STOREYS = ("boundary", "state", "given_back", "frames", "backing", "memory", "hooks", "start")
"""Modules of the crate, lowest first."""

ONLY_CALLER = {"frames": "backing"}
"""Storeys that one module alone may import."""

LARGEST_CIRCLE = 8
"""Files that may import each other in a circle: a room and its parts."""

ALLOWED: dict[tuple[str, str], str] = {}
"""Upward imports that are allowed: (file, module) → reason."""

VISIBLE = re.compile(r"\bpub\s*\(\s*in\s[^)]*\)")
PATH = re.compile(r"\b(?:crate|super|self)(?:::\w+)+")


def top(module: str) -> str:
    """The storey of a module."""
    return module.partition("::")[0]


def height(module: str) -> int:
    """The height of a module; those of no storey are above all."""
    return STOREYS.index(top(module)) if top(module) in STOREYS else len(STOREYS)


def absolute(path: tuple[str, ...], module: Module) -> tuple[str, ...]:
    """A path as it is written in a module, from the crate's root; () where it leads out of the crate."""
    here, rest = module.name, list(path)
    if rest[0] not in ("crate", "super", "self") and rest[0] not in module.children:
        return ()
    while rest and rest[0] in ("crate", "super", "self"):
        first = rest.pop(0)
        here = () if first == "crate" else here[:-1] if first == "super" else here
    return (*here, *rest)


def imports(module: Module, known: set[tuple[str, ...]]) -> set[str]:
    """The other modules that a module names."""
    code = VISIBLE.sub("pub", module.code)
    paths = [path for _, path, _ in module.uses]
    paths += [tuple(path.split("::")) for path in PATH.findall(USE.sub("", code))]
    found = set()
    for path in paths:
        target = absolute(path, module)
        while target not in known:
            target = target[:-1]
        if target not in ((), module.name):
            found.add("::".join(target))
    return found


def read(root: Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """The imports of each module below `root`, and the parts that it declares."""
    all_modules = modules(root / "lib.rs")
    known = {(), *(module.name for module in all_modules)}
    arrows = {"::".join(module.name): imports(module, known) for module in all_modules if module.name}
    parts = {
        "::".join(module.name): {"::".join((*module.name, part)) for part in module.children} for module in all_modules
    }
    return arrows, parts


def check(root: Path) -> list[str]:
    """Prints the storeys; returns the violations."""
    arrows, parts = read(root)
    faults = [f"{storey} is no storey" for storey in sorted({*map(top, arrows)} - {*STOREYS})]
    climbing = [(a, b) for a in sorted(arrows) for b in sorted(arrows[a]) if height(b) > height(a)]
    for a, b in climbing:
        reason = ALLOWED.get((a, b))
        print(f"climbs: {a} → {b}" + (f" (allowed: {reason})" if reason else ""))
        if reason is None:
            faults.append(f"{a} imports {b}, which lies higher")
    faults += [f"ALLOWED lists {a} → {b}, which is no more" for a, b in sorted(ALLOWED.keys() - {*climbing})]
    for module, targets in sorted(arrows.items()):
        for storey in sorted({*map(top, targets)} - {top(module)}):
            if ONLY_CALLER.get(storey, top(module)) != top(module):
                faults.append(f"{module} imports {storey}, which {ONLY_CALLER[storey]} alone may")
    groups = circles({module: sorted(arrows[module] | parts[module]) for module in sorted(arrows)})
    for group in groups:
        print(f"circle of {len(group)} files: {', '.join(group)}")
        if len(group) > LARGEST_CIRCLE:
            faults.append(f"a circle of {len(group)} files: {group[0]} … {group[-1]}")
    storeys = circles(folded(arrows, top))
    faults += [f"a circle of {len(group)} top-level modules: {', '.join(group)}" for group in storeys]
    print(
        f"{len(arrows)} files, {sum(map(len, arrows.values()))} imports, {len(climbing)} climbing, "
        f"largest circle {max(map(len, groups), default=0)} files, "
        f"{sum(map(len, storeys))} top-level modules in circles"
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
