"""The measurements of the source tree: ``make house`` prints them.

The product is the Rust under ``crates/*/src`` and the Python under ``src``. Lines are counted without blanks, comments,
docstrings and tests (Rust: what stands under ``#[cfg(test)]``, whole files as well). Pairs of places are looked for in
``bench`` too (the rule is in ``tools/copies.py``). ``--long`` lists what is behind the counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median, quantiles

from tools import python_source, rust_source, storeys
from tools.circles import circles, folded, largest
from tools.copies import Lines, Pair, pairs

GUEST = "preload"
SHORT = 50


@dataclass
class House:
    """Everything that is measured of a tree. Circles have the largest first."""

    files: dict[str, Lines]  # product file → its lines of code
    lengths: dict[str, int]  # product file → all its lines
    functions: list[tuple[int, str]]  # lines, place
    unsafe_blocks: int
    guest_files: int
    guest_modules: int
    guest_circles: list[list[str]]
    guest_module_circles: list[list[str]]
    guest_imports: int
    guest_climbing: int
    module_circles: list[list[str]]  # top-level modules, of every crate
    package_circles: list[list[str]]
    copies: list[Pair]

    @property
    def lines(self) -> int:
        return sum(map(len, self.files.values()))

    @property
    def short_files(self) -> list[str]:
        return sorted(file for file, length in self.lengths.items() if length < SHORT)

    @property
    def faces(self) -> list[str]:
        """The short files that a language requires, or that name a folder: they only declare."""
        names = {"__init__.py", "__main__.py", "lib.rs", "main.rs", "mod.rs"}
        folders = {str(Path(file).parent) for file in self.lengths}
        return [one for one in self.short_files if Path(one).name in names or one.removesuffix(".rs") in folders]

    def rows(self) -> list[tuple[str, str]]:
        """Names and values of all measurements, as printed."""
        lengths = sorted(length for length, _ in self.functions)
        p90 = round(quantiles(lengths, n=10)[-1]) if len(lengths) > 1 else sum(lengths)
        function_text = f"{median(lengths):.0f} / {p90} / {lengths[-1]}" if lengths else "–"
        return [
            ("files in the guest's largest import circle", f"{largest(self.guest_circles)} of {self.guest_files}"),
            (
                "the guest's top-level modules in one circle",
                f"{largest(self.guest_module_circles)} of {self.guest_modules}",
            ),
            ("imports in the guest that climb", f"{self.guest_climbing} of {self.guest_imports}"),
            ("circles of Python packages", str(len(self.package_circles))),
            ("circles between top-level modules of a crate", str(len(self.module_circles))),
            ("product lines (no tests, blanks, comments)", f"{self.lines:,}"),
            ("product files", str(len(self.files))),
            (f"product files under {SHORT} lines", str(len(self.short_files))),
            ("… of which faces of crates, packages and folders", str(len(self.faces))),
            ("median / p90 / longest Rust function", function_text),
            ("pairs of places that share six or more lines", str(len(self.copies))),
            ("unsafe blocks", str(self.unsafe_blocks)),
        ]


def measure(root: Path) -> House:
    """Reads the crates under ``root/crates`` and the packages under ``root/src``."""
    house = House({}, {}, [], 0, 0, 0, [], [], 0, 0, [], [], [])
    for entry in sorted([*root.glob("crates/*/src/lib.rs"), *root.glob("crates/*/src/main.rs")]):
        _add_crate(house, root, entry)
    for package in sorted(path.parent for path in root.glob("src/*/__init__.py")):
        graph = python_source.graph(package)
        house.package_circles += package_circles(graph, package.name)
    for path in sorted(root.glob("src/**/*.py")):
        file, text = str(path.relative_to(root)), path.read_text()
        house.files[file], house.lengths[file] = python_source.code_lines(text), len(text.splitlines())
    bench = {
        str(path.relative_to(root)): python_source.code_lines(path.read_text()) for path in root.glob("bench/**/*.py")
    }
    house.copies = pairs({**house.files, **bench})
    return house


def _add_crate(house: House, root: Path, entry: Path) -> None:
    crate, name = rust_source.Crate.read(entry), entry.parent.parent.name
    for module in crate:
        file = str(module.path.relative_to(root))
        numbered = enumerate(module.code.splitlines(), 1)
        house.files[file] = [(number, line.strip()) for number, line in numbered if line.strip()]
        house.lengths[file] = len(module.path.read_text().splitlines())
        house.functions += [(lines, f"{file}: {called}") for called, lines in rust_source.functions(module.code)]
        house.unsafe_blocks += rust_source.unsafe_blocks(module.code)
    graph = crate.graph()
    between = folded(graph, lambda module: module.partition("::")[0])
    house.module_circles += [[f"{name}::{module}" for module in circle] for circle in circles(between)]
    if name == GUEST:
        house.guest_files, house.guest_modules = len(graph), len(between)
        house.guest_circles, house.guest_module_circles = circles(graph), circles(between)
        arrows, _ = storeys.read(entry.parent)
        imports = [(module, target) for module, targets in arrows.items() for target in targets]
        house.guest_imports = len(imports)
        house.guest_climbing = sum(storeys.height(target) > storeys.height(module) for module, target in imports)


def package_circles(graph: dict[str, set[str]], package: str) -> list[list[str]]:
    """Circles among the parts of every package: its modules and the packages in it, each with all that it holds.

    A package is no part of itself: what its ``__init__`` imports, it offers.
    """
    found: list[list[str]] = []
    packages = {package} | {name.rpartition(".")[0] for name in graph if "." in name}
    for outer in sorted(packages):
        inside = {name: targets for name, targets in graph.items() if name.startswith(f"{outer}.")}
        within = {name: {one for one in targets if one in inside} for name, targets in inside.items()}
        found += circles(folded(within, partial(_part, depth=outer.count(".") + 2)))
    return found


def _part(name: str, depth: int) -> str:
    return ".".join(name.split(".")[:depth])


def details(house: House) -> str:
    """The lists behind the counts."""
    sections = {
        "circles of Python packages": [" ".join(circle) for circle in house.package_circles],
        "circles between top-level modules of a crate": [" ".join(circle) for circle in house.module_circles],
        f"files under {SHORT} lines": [f"{house.lengths[file]:3} {file}" for file in house.short_files],
        "longest Rust functions": [f"{lines:3} {place}" for lines, place in sorted(house.functions)[-10:]],
        "pairs of places": [
            f"{pair.lines:3} {pair.first_file}:{pair.first_line} {pair.second_file}:{pair.second_line}"
            for pair in house.copies
        ],
    }
    return "\n".join(f"\n{title}:\n" + "\n".join(f"  {line}" for line in lines) for title, lines in sections.items())


def main(arguments: list[str]) -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.house", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="the tree to measure (this one)")
    parser.add_argument("--long", action="store_true", help="what is behind the counts as well")
    parser.add_argument("--json", action="store_true", help="the rows as JSON")
    asked = parser.parse_args(arguments)
    house = measure(asked.root)
    if asked.json:
        print(json.dumps(dict(house.rows()), indent=2))
        return
    width = max(len(name) for name, _ in house.rows())
    print("\n".join(f"{name:{width}}  {value}" for name, value in house.rows()))
    if asked.long:
        print(details(house))


if __name__ == "__main__":
    main(sys.argv[1:])
