"""Policies through the Python API: typed values, typed errors, and the mirrors of Rust's types."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from pagelab import _native, policy
from pagelab.policy import Flags, Interval, Mosaic, PolicyError
from pagelab.record import WarningKind
from pagelab.study.planning import plan_file

K4, M2, G1 = 4 << 10, 2 << 20, 1 << 30

USERS_MACHINE = {
    "base_page_bytes": K4,
    "thp_bytes": M2,
    "mthp_bytes": [16 << 10, 64 << 10],
    "mthp_switchable": False,
    "hugetlb": [{"page_bytes": M2, "pages": 0}, {"page_bytes": G1, "pages": 0}],
    "max_map_count": 65530,
    "something_else": "is ignored",
}

CACHE = {"line_bytes": 64, "sets": 2048, "ways": 8}

HOT = """
name = "hot"
pages = "4K"
[[rule]]
memory = ["heap", "arenas"]
pages = { mosaic = [["0", "64M", "2M"], ["1G", "2G", "1G"]], otherwise = "kernel" }
[[rule]]
memory = "file"
at_least = "1M"
fetch = "demand"
"""


def test_a_policy_has_typed_values() -> None:
    hot = policy.parse(HOT, "hot.toml")
    assert (hot.name, hot.pages, hot.fetch, hot.via, hot.is_kernel) == ("hot", K4, "kernel", "thp", False)
    first, second = hot.rules
    assert first.memory == ("heap", "arenas")
    assert first.pages == Mosaic((Interval(0, 64 << 20, M2), Interval(G1, 2 * G1, G1)), otherwise_bytes=None)
    assert first.names == {"pages"}
    assert (second.at_least_bytes, second.fetch, second.names) == (1 << 20, "demand", {"fetch"})


def test_the_kernel_policy_says_so() -> None:
    assert policy.parse('name = "baseline"', "p.toml").is_kernel


def test_canonical_toml_reads_back_to_the_same_policy_and_digest() -> None:
    hot = policy.parse(HOT, "hot.toml")
    again = policy.parse(hot.toml, "again.toml")
    assert again == hot
    assert again.digest == hot.digest
    assert _native.policy_to_toml(json.dumps(hot.document)) == hot.toml
    assert policy.parse(HOT.replace("2G", "3G"), "hot.toml").digest != hot.digest


def test_a_refused_policy_carries_file_line_message_and_allowed_values() -> None:
    with pytest.raises(PolicyError) as caught:
        policy.parse('name = "x"\nfetch = "demnad"\n', "dir/p.toml")
    error = caught.value
    assert (error.file, error.line, error.exit_code) == ("dir/p.toml", 2, 2)
    assert error.message == 'unknown value "demnad" of `fetch`'
    assert error.allowed == ("kernel", "demand", "prefault", "willneed")
    assert str(error) == (
        'dir/p.toml:2: unknown value "demnad" of `fetch`; did you mean demand? '
        "Allowed: kernel, demand, prefault, willneed"
    )


@pytest.mark.parametrize(
    ("text", "next_command"),
    [
        ('pages = "1G"', "run: sudo pagelab doctor --fix hugepages-1G=1"),
        ('pages = "64K"', "run pagelab as root, on a machine of your own"),
    ],
)
def test_a_size_the_machine_lacks_names_the_command_that_enables_it(text: str, next_command: str) -> None:
    assert policy.parse(text, "p.toml")  # a machine that offers everything
    with pytest.raises(PolicyError) as caught:
        policy.parse(text, "p.toml", USERS_MACHINE)
    assert caught.value.next == next_command
    assert caught.value.allowed == ("4K", "2M (thp)", "kernel")


def test_flags_override_the_file(tmp_path: Path) -> None:
    base = tmp_path / "hot.toml"
    base.write_text(HOT)
    flags = Flags(pages=["2M", "heap=4K"], fetch=["file=willneed"], inherit_exec=False)
    merged = policy.from_flags(flags, base=base)
    assert merged.pages == M2
    # The file's own rule for files would never apply.
    assert [rule.memory for rule in merged.rules] == [("heap",), ("file",)]
    assert [rule.fetch for rule in merged.rules] == ["kernel", "willneed"]
    assert (merged.inherit_fork, merged.inherit_exec) == (True, False)
    assert merged.name == "hot with --pages 2M --pages heap=4K --fetch file=willneed"


def test_a_bad_flag_is_named_as_it_was_typed() -> None:
    with pytest.raises(PolicyError, match=r"^--pages heap=0-3M:2M: interval 0-3M of 2M pages is not aligned"):
        policy.from_flags(Flags(pages=["heap=0-3M:2M"]))


LAYOUT = "type,pageSize,startOffset,endOffset\nbrk,-1,0,1073741824\nmmap,-1,0,1048576\nbrk,2097152,0,4194304\n"


def test_a_layout_by_flag_by_file_and_by_policy_is_the_same(tmp_path: Path) -> None:
    (tmp_path / "layout.csv").write_text(LAYOUT)
    (tmp_path / "p.toml").write_text('name = "layout"\npages = { csv = "layout.csv" }\n')
    by_file = policy.load(tmp_path / "layout.csv")
    assert by_file.name == "layout"
    assert by_file.rules[0].pages == Mosaic((Interval(0, 4 << 20, M2),), otherwise_bytes=K4)
    assert by_file.rules[1].memory == ("anon", "arenas")
    assert policy.load(tmp_path / "p.toml") == by_file
    by_flag = policy.from_flags(Flags(layout=tmp_path / "layout.csv", name="layout"))
    assert by_flag == by_file


def test_a_layout_with_a_missing_column_is_refused_at_its_line(tmp_path: Path) -> None:
    (tmp_path / "l.csv").write_text(LAYOUT.replace(",endOffset", ""))
    with pytest.raises(PolicyError, match="column `endOffset` is missing") as caught:
        policy.load(tmp_path / "l.csv")
    assert (caught.value.file, caught.value.line) == (str(tmp_path / "l.csv"), 1)
    assert "endOffset" in caught.value.allowed


@pytest.mark.parametrize("name", ["missing.toml", "missing.csv"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(PolicyError, match="cannot read the file: No such file or directory"):
        policy.load(tmp_path / name)


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(PolicyError, match="not UTF-8"):
        policy.load(tmp_path / "p.toml")


def test_frames_need_a_number_of_colours() -> None:
    coloured = policy.parse('frames = { kind = "page-coloring", colors = 64 }', "p.toml")
    assert (coloured.frames, coloured.governs_frames) == ("page-coloring", True)
    policy.check_runnable(coloured, USERS_MACHINE)
    assert "cache" not in USERS_MACHINE
    with pytest.raises(PolicyError, match="no last-level cache") as caught:
        policy.check_runnable(policy.parse('frames = "page-coloring"', "p.toml"), USERS_MACHINE)
    assert "colors = N" in caught.value.allowed
    policy.check_runnable(policy.parse('frames = "page-coloring"', "p.toml"), {**USERS_MACHINE, "cache": CACHE})


def test_frames_of_a_rule_count_too() -> None:
    only = policy.parse('[[rule]]\nmemory = "stack"\nframes = { random = { colors = 8 } }', "p.toml")
    assert only.governs_frames
    assert not policy.parse('frames = "kernel"\npages = "2M"', "p.toml").governs_frames


MAP = """{"schema": "pagelab.framemap/1", "pid": 1, "colours": 4,
 "spans": [{"start": "0x600000000000", "pages": 2, "frames": [813, null], "colours": [1, null]}]}"""


def test_a_saved_map_lies_beside_its_policy_and_stands_in_the_canonical_text(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(MAP)
    (tmp_path / "p.toml").write_text('name = "again"\nframes = { modulo = "m.json" }\n')
    replay = policy.load(tmp_path / "p.toml")
    assert '["0x600000000000", "1 ."]' in replay.toml
    assert policy.parse(replay.toml, "elsewhere.toml") == replay
    flag = policy.from_flags(Flags(name="again", frames=[f"modulo:map={tmp_path / 'm.json'}"]))
    assert flag == replay


def test_a_module_is_found_beside_its_policy_wherever_the_policy_goes(tmp_path: Path) -> None:
    (tmp_path / "p.toml").write_text('frames = { module = { path = "./mine.so", colors = 4 } }\n')
    document = policy.load(tmp_path / "p.toml").document
    assert Path(document["frames"]["strategy"]["path"]) == tmp_path / "mine.so"


def test_a_saved_map_that_is_none_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text("{}")
    (tmp_path / "p.toml").write_text('frames = { exact = "m.json" }\n')
    with pytest.raises(PolicyError, match="not a saved map") as caught:
        policy.load(tmp_path / "p.toml")
    assert (caught.value.file, caught.value.line) == ("m.json", 1)
    assert caught.value.next == "write one with: sudo pagelab map --save FILE PID"


DOCS = Path(__file__).parent.parent / "docs"


def blocks(page: str) -> list[str]:
    return [block.split("```")[0] for block in (DOCS / page).read_text().split("```toml\n")[1:]]


def test_the_policies_of_the_documentation_are_accepted() -> None:
    assert len(blocks("policy.md")) >= 4
    for block in blocks("policy.md"):
        if "csv =" not in block:
            assert policy.parse(block, "docs/policy.md").name


def test_the_page_on_frames_shows_what_is_accepted(tmp_path: Path) -> None:
    study, module = blocks("frames.md")
    assert policy.parse(module, "docs/frames.md").frames == "module"
    (tmp_path / "s.toml").write_text(study)
    assert len(plan_file(tmp_path / "s.toml", tmp_path / "out").conditions) == 4
    text = (DOCS / "frames.md").read_text()
    flags = [
        (flag, "kernel" if "--backend kernel" in line else None)
        for line in text.replace("\\\n", " ").splitlines()
        for flag in re.findall(r"--frames '?([^ ']+)", line)
    ]
    assert len(flags) >= 6
    for flag, backend in flags:
        if "map=" not in flag:
            assert policy.from_flags(Flags(frames=[flag], backend=backend)).governs_frames
    for kind in (kind.value for kind in WarningKind if kind.value.startswith(("frames-", "colours-"))):
        assert f"`{kind}`" in text
