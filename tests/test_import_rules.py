"""Which part of pagelab may import which: the tables in docs/architecture.md against the sources."""

from __future__ import annotations

import pkgutil
import re
import tomllib
from importlib import import_module
from pathlib import Path

from tools import python_source

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/architecture.md"
PACKAGE = "pagelab"


def table() -> dict[str, list[str]]:
    """Part → what it may import: a part with all it holds, or one module of a part."""
    text = PAGE.read_text()
    rows = text[text.index("<!-- import rules -->") : text.index("<!-- end of import rules -->")]
    rules: dict[str, list[str]] = {}
    for parts, allowed in re.findall(r"^\| ((?:`[\w.]+`(?:, )?)+) \|[^|]*\|([^|]*)\|$", rows, re.MULTILINE):
        for part in re.findall(r"`([\w.]+)`", parts):
            assert part not in rules, f"{part} has two rows in {PAGE.name}"
            rules[part] = re.findall(r"`([\w.]+)`", allowed)
    return rules


def imports() -> set[tuple[str, str]]:
    """(importing module, imported module) wherever two parts meet; names without ``pagelab.``."""
    graph = python_source.graph(ROOT / "src" / PACKAGE)
    short = {name: name.removeprefix(f"{PACKAGE}.") for name in graph}
    return {
        (short[name], short[target])
        for name, targets in graph.items()
        for target in targets
        if name != PACKAGE and part(short[name]) != part(short[target])
    }


def part(module: str) -> str:
    return module.split(".")[0]


def allows(rule: str, module: str) -> bool:
    return module == rule or module.startswith(f"{rule}.")


def test_every_part_has_a_row_and_every_row_a_part() -> None:
    names = {part(name.removeprefix(f"{PACKAGE}.")) for name in python_source.modules(ROOT / "src" / PACKAGE)}
    assert set(table()) == names - {PACKAGE, "__main__"}


def test_parts_import_what_the_table_allows() -> None:
    rules = table()
    refused = {
        f"{name} imports {target}"
        for name, target in imports()
        if name != "__main__" and not any(allows(rule, target) for rule in rules[part(name)])
    }
    assert not refused, f"not allowed by the table in {PAGE.name}: {sorted(refused)}"


def test_the_table_allows_nothing_that_nobody_needs() -> None:
    edges = imports()
    unused = {
        f"{name}: {rule}"
        for name, allowed in table().items()
        for rule in allowed
        if not any(part(source) == name and allows(rule, target) for source, target in edges)
    }
    assert not unused, f"the table in {PAGE.name} allows what nobody imports: {sorted(unused)}"


def test_parts_stand_on_those_above_them_in_the_table() -> None:
    """So there are no circles, and the order in which to read is the table's."""
    rules = table()
    order = list(rules)
    up = {
        f"{name}: {rule}"
        for name, allowed in rules.items()
        for rule in allowed
        if order.index(part(rule)) >= order.index(name)
    }
    assert not up, f"imports of parts that stand lower in the table: {sorted(up)}"


def test_crates_depend_on_what_the_map_says() -> None:
    text = PAGE.read_text()
    section = text[text.index("### Crates") : text.index("### Python")]
    said: dict[str, set[str]] = {}
    for names, others in re.findall(r"^\| (`[^|]*`) \|([^|]*)\|$", section, re.MULTILINE):
        said |= {name: set(re.findall(r"`(\w+)`", others)) for name in re.findall(r"`(\w+)`", names)}
    found = {}
    for manifest in ROOT.glob("crates/*/Cargo.toml"):
        used = tomllib.loads(manifest.read_text()).get("dependencies", {})
        found[manifest.parent.name] = {name.removeprefix("pagelab-") for name in used if name.startswith("pagelab-")}
    assert said == found


def test_no_name_that_is_imported_when_it_is_used_is_that_of_a_module() -> None:
    """Regression: ``pagelab.simulate.tlb_windows`` was a function, and after its first use the module that has it."""
    lazy = [path for path in (ROOT / "src" / PACKAGE).rglob("__init__.py") if "def __getattr__(" in path.read_text()]
    assert len(lazy) >= 4
    for path in lazy:
        name = ".".join(path.parent.relative_to(ROOT / "src").parts)
        package = import_module(name)
        modules = {module.name for module in pkgutil.iter_modules(package.__path__)}
        functions = {one for one in dir(package) if one in modules and callable(getattr(package, one))}
        assert not functions, f"{name}: {functions}"
        homes = getattr(package, "_HOMES", None) or getattr(package, "_HOME", None) or package._NAMES
        assert not modules & set(homes), f"{name}: {modules & set(homes)}"
