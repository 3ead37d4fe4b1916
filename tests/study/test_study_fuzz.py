"""Arbitrary input is refused in words, or accepted: never a traceback. And what is written is read back."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import tomllib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab.study.errors import StudyError
from pagelab.study.imported import Columns, import_into, read_csv, read_hyperfine
from pagelab.study.planning import plan_text
from pagelab.study.spec import RawStudy
from pagelab.study.substitute import names_in, substitute, substitute_shell
from pagelab.study.toml_text import LineIndex, dumps

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=12)
scalars = st.one_of(texts, st.integers(-(2**63), 2**63 - 1), st.booleans(), st.floats(allow_nan=False))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
tables = st.dictionaries(texts, values, max_size=4)


@given(tables)
def test_toml_is_written_as_it_is_read(table: dict[str, object]) -> None:
    assert tomllib.loads(dumps(table)) == table


known = st.sampled_from([*RawStudy.model_fields, "command", "shell", "pages", "files", "mode", "looks", "target"])
plausible = st.one_of(
    values,
    st.sampled_from(["a", "kernel", "{size}", "1s", "2%", "files", "wall_s", "x | y", ["sort"], [20, 40]]),
)
studies = st.fixed_dictionaries(
    {
        "workload": st.lists(st.dictionaries(known | st.just("name"), plausible, max_size=4), max_size=2),
        "policy": st.lists(st.dictionaries(known | st.just("name"), plausible, max_size=3), max_size=2),
    },
    optional={name: plausible for name in RawStudy.model_fields if name not in ("workload", "policy")},
)


@pytest.mark.by_turns(4)
@settings(max_examples=400)
@given(studies)
def test_any_study_is_planned_or_refused(study: dict[str, object]) -> None:
    with contextlib.suppress(StudyError):
        plan_text(dumps(study), Path("/nowhere/study.toml"), Path("/nowhere/out"))


@given(st.text(max_size=60))
def test_lines_are_found_in_any_text(text: str) -> None:
    LineIndex(text).line(("workload", 0, "name"))


cells = st.text(st.characters(codec="utf-8"), max_size=6) | st.sampled_from(["1", "2.5", "time", "a", ",", "\n", '"'])


@settings(max_examples=200)
@given(st.lists(cells, max_size=12).map(",".join))
def test_any_csv_is_imported_or_refused(text: str) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(StudyError):
        path = Path(name) / "r.csv"
        path.write_bytes(text.encode())
        samples = read_csv(path, Columns())
        import_into(Path(name) / "out", samples, origin=path, name="r")


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["results", "times", "command", "exit_codes", "parameters", "memory_usage_byte"]), inner
        )
    ),
    max_leaves=12,
)


@settings(max_examples=200)
@given(json_values)
def test_any_json_is_imported_or_refused(value: object) -> None:
    with tempfile.TemporaryDirectory() as name, contextlib.suppress(StudyError):
        path = Path(name) / "h.json"
        path.write_text(json.dumps(value))
        read_hyperfine(path)


@given(st.text(alphabet="{}$ab _1", max_size=20), st.text(alphabet="{}xy", max_size=3))
def test_substitution_replaces_what_it_names_and_nothing_else(text: str, value: str) -> None:
    names = names_in(text)
    assert substitute(text, dict.fromkeys(names, value)) == substitute(
        text, {**dict.fromkeys(names, value), "zz": "no"}
    )
    if not names and "{{" not in text:
        assert substitute(text, {}) == text


PATHS = st.text(alphabet=" '\"$`\\\n*a/", min_size=1, max_size=8)


@given(PATHS)
def test_a_path_in_a_shell_line_is_one_word_in_quotes_and_outside(path: str) -> None:
    line = substitute_shell("printf %s\\\\n {out}/x '{out}' \"{out}\" \"it's \"{out} \\'{out}", {"out": path})
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "".join(f"{word}\n" for word in (f"{path}/x", path, path, f"it's {path}", f"'{path}"))


@given(st.text(alphabet=" '\"$`\\*()#a/", min_size=1, max_size=8))
def test_a_path_in_nested_commands_and_behind_comments_is_one_word(path: str) -> None:
    line = """
# it's a comment
(printf '%s\\n' {out})&&  # "another (
printf '%s\\n' "$(printf %s {out}; printf %s "{out}" '{out}')" "\\$({out}" a#{out} "${#}{out}"
printf '%s\\n' "($(printf %s "$(echo x){out}")"
printf '%s\\n' {out}"$((1 + 2))" \\"{out} \\({out} "\\\\$(printf %s {out})" \\ #{out}
"""
    script = substitute_shell(line, {"out": path})
    done = subprocess.run(["/bin/dash", "-c", script], capture_output=True, text=True, check=True)
    words = [
        path,
        path * 3,
        f"$({path}",
        f"a#{path}",
        f"0{path}",
        f"(x{path}",
        f"{path}3",
        f'"{path}',
        f"({path}",
        f"\\{path}",
        f" #{path}",
    ]
    assert done.stdout == "".join(f"{word}\n" for word in words), script


def test_a_plain_path_and_parameters_are_put_into_a_shell_line_as_they_are() -> None:
    values = {"out": "/tmp/s.study", "words": "-a 'b c'"}
    for line in ("x=`cat '{out}'`", "# in {out}", "cat <<X\n{out}\nX"):
        assert substitute_shell(line, {"out": "/a b"}) == substitute(line, {"out": "/a b"})
    for line in ("ls {words} {out}/x", "sh -c 'ls {words} \"{out}\"'", '{{out}} ${out} "{words}"'):
        assert substitute_shell(line, values) == substitute(line, values)
