"""`make house`: every number it prints, on trees whose numbers are known."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tools import house, python_source, rust_source
from tools.circles import circles
from tools.copies import pairs

ROOT = Path(__file__).parent.parent
NODES = "abcdefg"
GRAPHS = st.fixed_dictionaries({node: st.sets(st.sampled_from(NODES)) for node in NODES})


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@given(GRAPHS)
def test_circles_are_the_groups_that_all_reach_each_other(graph: dict[str, set[str]]) -> None:
    reach = {node: {node} | targets for node, targets in graph.items()}
    for middle in NODES:  # Warshall
        for node in NODES:
            if middle in reach[node]:
                reach[node] |= reach[middle]
    same = {frozenset(other for other in NODES if other in reach[node] and node in reach[other]) for node in NODES}
    assert {frozenset(circle) for circle in circles(graph)} == {group for group in same if len(group) > 1}


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("a // b\nc", "a     \nc"),
        ("a /* b /* c */ d */ e", "a                   e"),
        ("x(\"// no {\", '{')", "x('       ', ' ')"),
        ('x(r#"a "quoted" {"#)', f"x('{' ' * 15}')"),
        ("fn f<'a>(x: &'a str) {}", "fn f<'a>(x: &'a str) {}"),
        (r"'\'' + '\u{7f}'", "'  ' + '      '"),
    ],
)
def test_comments_and_texts_of_rust_are_masked(text: str, code: str) -> None:
    assert rust_source.masked(text) == code


def test_test_items_are_no_product() -> None:
    code, only_tests = rust_source.without_tests(
        "fn a() {}\n#[cfg(test)]\n#[path = x]\nmod naive;\n#[cfg(test)]\nmod tests {\n  fn b() { c() }\n}\nfn d() {}\n"
    )
    assert [name for name, _ in rust_source.functions(code)] == ["a", "d"]
    assert only_tests == ["naive"]


def test_names_of_a_use_tree() -> None:
    tree_text = "crate::a::{self, b::{C, D as E}, f::*}"
    assert list(rust_source.use_tree(tree_text)) == [
        (("crate", "a"), "a"),
        (("crate", "a", "b", "C"), "C"),
        (("crate", "a", "b", "D"), "E"),
        (("crate", "a", "f", "*"), "*"),
    ]


def test_imports_of_a_crate_follow_re_exports_aliases_and_super(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "src/lib.rs": "mod a;\npub mod b;\nmod c;\npub use a::Thing;\n#[cfg(test)]\nmod tests;\n",
            "src/a.rs": "pub struct Thing;\n",
            "src/b.rs": "mod inner;\nuse crate::{Thing, c as other};\nfn f() { other::g(); inner::h() }\n",
            "src/b/inner.rs": "use super::super::c::g;\npub fn h() { g() }\n#[cfg(test)]\nmod t { use crate::a; }\n",
            "src/c/mod.rs": "pub fn g() { crate::b::f() }\n",
            "src/tests.rs": "use crate::a;\n",
        },
    )
    graph = rust_source.Crate.read(root / "src/lib.rs").graph()
    assert graph == {"crate": set(), "a": set(), "b": {"a", "c", "b::inner"}, "b::inner": {"c"}, "c": {"b"}}


def test_lines_and_imports_of_python(tmp_path: Path) -> None:
    text = '"""A module."""\n\nfrom .b import c  # why\n\n\ndef f():\n    """Says it."""\n    return """\n\n    x"""\n'
    assert [line for _, line in python_source.code_lines(text)] == [
        "from .b import c",
        "def f():",
        'return """',
        'x"""',
    ]
    root = tree(
        tmp_path,
        {
            "p/__init__.py": "",
            "p/a/__init__.py": "from p.b import c\n",
            "p/a/x.py": "def f():\n    from ..b import c\n",
            "p/b/__init__.py": "",
            "p/b/c.py": "import p.a.x\n",
            "p/data/program.py": "import p\n",
        },
    )
    graph = python_source.graph(root / "p")
    assert graph == {"p": set(), "p.a": {"p.b.c"}, "p.a.x": {"p.b.c"}, "p.b": set(), "p.b.c": {"p.a.x"}}
    assert house.package_circles(graph, "p") == [["p.a", "p.b"]]


def test_pairs_of_places_need_six_telling_lines() -> None:
    body = [(number, f"x{number} = f({number})") for number in range(1, 7)]
    other = [(1, "from a import ("), (2, "    b,"), (3, ")"), *((number + 9, text) for number, text in body), (20, "}")]
    (pair,) = pairs({"one": body, "two": other})
    assert (pair.first_file, pair.first_line, pair.second_file, pair.second_line, pair.lines) == (
        "one",
        1,
        "two",
        10,
        6,
    )
    assert pairs({"one": body[:5], "two": other}) == []
    rows = [(number, "row(1)") for number in range(11)]
    assert pairs({"table": rows}) == []


def test_the_table_of_a_small_tree(tmp_path: Path) -> None:
    root = tree(
        tmp_path,
        {
            "crates/preload/src/lib.rs": "mod a;\nmod b;\nmod c;\nmod boundary;\n",
            "crates/preload/src/boundary.rs": "use crate::c::h;\n",
            "crates/preload/src/a.rs": "//! A.\nuse crate::b::g;\npub fn f() {\n    // Why.\n    unsafe { g() }\n}\n",
            "crates/preload/src/b.rs": "pub unsafe fn g() {\n    crate::a::f()\n}\n",
            "crates/preload/src/c.rs": "pub fn h() {}\n",
            "crates/tool/src/main.rs": "mod x;\nfn main() { x::run() }\nfn fail() {}\n",
            "crates/tool/src/x.rs": "pub fn run() { crate::fail() }\n" + "// long\n" * 60,
            "src/p/__init__.py": "X = 1\n",
        },
    )
    command = [sys.executable, "-m", "tools.house", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    values = dict(house.measure(root).rows())
    printed = dict(re.split(r" {2,}", line) for line in done.stdout.splitlines())
    assert printed == values
    assert values == {
        "files in the guest's largest import circle": "2 of 5",
        "the guest's top-level modules in one circle": "2 of 5",
        "imports in the guest that climb": "1 of 3",
        "circles of Python packages": "0",
        "circles between top-level modules of a crate": "2",
        "product lines (no tests, blanks, comments)": "18",
        "product files": "8",
        "product files under 50 lines": "7",
        "… of which faces of crates, packages and folders": "3",
        "median / p90 / longest Rust function": "1 / 4 / 4",
        "pairs of places that share six or more lines": "0",
        "unsafe blocks": "1",
    }
    longer = subprocess.run([*command, "--long"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert "tool::crate tool::x" in longer


def test_a_file_beside_its_folder_is_a_face_and_other_short_files_are_not(tmp_path: Path) -> None:
    sources = {"lib.rs": "mod x;\nmod z;\n", "x.rs": "mod y;\n", "x/y.rs": "", "z.rs": "pub fn z() {}\n"}
    found = house.measure(tree(tmp_path, {f"crates/a/src/{name}": text for name, text in sources.items()}))
    assert found.faces == ["crates/a/src/lib.rs", "crates/a/src/x.rs"]
    assert len(found.short_files) == 4


@pytest.mark.by_turns(4)
def test_this_tree_has_no_circles_but_the_guests_small_one() -> None:
    found = house.measure(ROOT)
    assert (found.package_circles, found.module_circles, found.guest_module_circles) == ([], [], [])
    assert max(map(len, found.guest_circles), default=0) <= 8
