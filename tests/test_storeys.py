"""tools/storeys.py: what climbs and what goes round in circles in the guest library's sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tools import storeys

ROOT = Path(__file__).resolve().parent.parent


Check = Callable[[dict[str, str]], list[str]]


@pytest.fixture
def faults(tmp_path: Path) -> Check:
    def check(sources: dict[str, str]) -> list[str]:
        tops = sorted({Path(name).parts[0].removesuffix(".rs") for name in sources})
        (tmp_path / "lib.rs").write_text("".join(f"mod {top};\n" for top in tops))
        for name, text in sources.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return storeys.check(tmp_path)

    return check


def test_the_guest_library_is_in_storeys(capsys: pytest.CaptureFixture[str]) -> None:
    assert storeys.check(storeys.SOURCES) == []
    assert " 0 climbing" in capsys.readouterr().out or storeys.ALLOWED


def test_the_map_of_the_guest_names_every_room() -> None:
    drawing = (ROOT / "docs" / "architecture" / "guest.md").read_text().split("```")[1]
    depth = {"frames": 3}
    modules = [tuple(module.split("::")) for module in storeys.read(storeys.SOURCES)[0]]
    rooms = {module for module in modules if len(module) <= depth.get(module[0], 2)}
    words = set(drawing.replace("/", " ").replace(".rs", " ").split())
    assert sorted(module for module in rooms if module[-1] not in words) == []
    assert [line.split("/")[0].split(".")[0] for line in drawing.splitlines() if line[:1].islower()] == list(
        reversed(storeys.STOREYS)
    )


def test_imports_of_lower_storeys_are_fine(faults: Check) -> None:
    assert faults({"boundary.rs": "", "state.rs": "use crate::boundary::sys;", "memory.rs": "use super::state;"}) == []


@pytest.mark.parametrize(
    "text",
    [
        "use crate::memory::pool;",
        "use crate::{\n    boundary,\n    memory::{self, pool},\n};",
        "pub use super::memory as upstairs;",
        "fn f() { crate::memory::pool::map() }",
    ],
)
def test_an_import_that_climbs_is_a_fault(text: str, faults: Check) -> None:
    assert faults({"boundary.rs": "", "state.rs": text, "memory.rs": ""}) == ["state imports memory, which lies higher"]


@pytest.mark.parametrize(
    "text",
    [
        "// use crate::memory;",
        '/// See [`x`].\nconst TEXT: &str = "use crate::memory;";',
        "#[cfg(test)]\nmod tests {\n    use crate::memory::pool;\n    fn f() { '{'; }\n}",
        "#[cfg(test)]\nuse crate::memory;",
    ],
)
def test_comments_texts_and_tests_do_not_count(text: str, faults: Check) -> None:
    assert faults({"boundary.rs": "", "state.rs": text, "memory.rs": ""}) == []


def test_test_modules_in_files_of_their_own_do_not_count(faults: Check) -> None:
    sources = {"state.rs": "#[cfg(test)]\nmod tests;", "state/tests.rs": "use crate::memory;", "memory.rs": ""}
    assert faults({"boundary.rs": "", **sources}) == []


def test_a_room_may_go_in_a_circle_with_its_parts_and_no_further(
    faults: Check,
) -> None:
    def room(parts: int) -> dict[str, str]:
        names = [f"part{number}" for number in range(parts)]
        files = {f"memory/{name}.rs": "use super::Room;" for name in names}
        return {"memory.rs": "".join(f"mod {name};\n" for name in names), **files}

    assert faults({"boundary.rs": "", "state.rs": "", **room(7)}) == []
    assert faults({"boundary.rs": "", "state.rs": "", **room(8)}) == ["a circle of 9 files: memory … memory::part7"]


def test_two_storeys_in_a_circle_are_a_fault_even_where_no_file_is(
    faults: Check,
) -> None:
    sources = {"state.rs": "mod a;\nmod b;", "state/a.rs": "use crate::memory;", "state/b.rs": "", "boundary.rs": ""}
    found = faults({**sources, "memory.rs": "use crate::state::b;"})
    assert "a circle of 2 top-level modules: memory, state" in found


def test_the_engine_has_one_caller_and_every_file_a_storey(faults: Check) -> None:
    sources = {"boundary.rs": "", "state.rs": "", "frames.rs": "", "backing.rs": "use crate::frames;"}
    assert faults({**sources, "memory.rs": "use crate::frames;"}) == ["memory imports frames, which backing alone may"]
    assert faults({**sources, "memory.rs": "", "attic.rs": ""}) == ["attic is no storey"]


def test_what_is_allowed_must_still_be_there(faults: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storeys, "ALLOWED", {("state", "memory"): "a reason"})
    sources = {"boundary.rs": "", "memory.rs": ""}
    assert faults({**sources, "state.rs": "use crate::memory;"}) == []
    assert faults({**sources, "state.rs": ""}) == ["ALLOWED lists state → memory, which is no more"]
