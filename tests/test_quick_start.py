"""``pagelab run`` without its parser: the table of plain spellings is the parser's, and nothing heavy is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from pagelab.cli import quick
from pagelab.cli.run import run_command
from pagelab.cli.run_once import Asked
from pagelab.cli.run_settings import parameter_of
from pagelab.cli.settings import FLAGS
from pagelab.machine import describe
from pagelab.machine.colours.model import Verdict, VerdictFile
from pagelab.machine.colours.store import machine_hash


def command() -> Any:
    app = typer.Typer(add_completion=False)
    app.command("run", context_settings={"allow_interspersed_args": False})(run_command)
    return typer.main.get_command(app)


COMMAND = command()
PARAMETERS = {one.name: one for one in COMMAND.params if one.param_type_name == "option"}


def test_the_table_is_that_of_the_parser() -> None:
    """Every spelling, once, with the parameter and the kind that the parser has for it."""
    values, lists, switches = {}, {}, {}
    for name, one in PARAMETERS.items():
        if one.is_flag:
            switches |= dict.fromkeys(one.opts, (name, True)) | dict.fromkeys(one.secondary_opts, (name, False))
        else:
            (lists if one.multiple else values).update(dict.fromkeys(one.opts, name))
    typed = {f"--{flag}": parameter_of(flag) for flag in FLAGS}
    assert values == {**quick.VALUES, **typed}
    assert lists == quick.LISTS
    assert {word: said for word, said in switches.items() if word != "--help"} == quick.SWITCHES
    assert set(Asked._fields) == {*PARAMETERS, "argv", "settings"} - set(map(parameter_of, FLAGS)) - {"help"}


def test_defaults_are_those_of_the_command() -> None:
    for name, value in Asked._field_defaults.items():
        if name != "settings":
            default = PARAMETERS[name].default
            assert (value or None) == (default or None), name


def as_parsed(words: Sequence[str]) -> dict[str, Any]:
    """What the parser makes of the words, in the form of ``quick.arguments``, with all that was not said."""
    given = dict(COMMAND.make_context("run", list(words)).params)
    typed = {flag: value for flag in FLAGS if (value := given.pop(parameter_of(flag))) is not None}
    argv = list(given.pop("argv"))
    return {**{name: value or None for name, value in given.items()}, "argv": argv, "settings": typed}


TEXTS = st.sampled_from(
    ["a", "x=y", "2M", "1", "3.5", "-1", "", "--", "--json", "heap=2M", "1e3", "on", "/tmp/f", "007"]
)
OPTIONS = st.sampled_from([*quick.VALUES, *quick.LISTS, *quick.SWITCHES, *(f"--{flag}" for flag in FLAGS), "--nothing"])


@st.composite
def lines(draw: st.DrawFn) -> list[str]:
    words: list[str] = []
    for option in draw(st.lists(OPTIONS, max_size=5)):
        value = draw(TEXTS)
        form = draw(st.sampled_from(["apart", "joined", "alone"]))
        words += [f"{option}={value}"] if form == "joined" else [option, value] if form == "apart" else [option]
    return [*words, *draw(st.lists(TEXTS, max_size=3))]


@settings(max_examples=400, deadline=None)
@given(lines())
def test_what_is_read_without_the_parser_is_what_the_parser_reads(words: list[str]) -> None:
    found = quick.arguments(words)
    if found is not None:
        asked = Asked(**found)._asdict()
        settings, argv = asked.pop("settings"), asked.pop("argv")
        plain = {name: value or None for name, value in asked.items()}
        assert {**plain, "argv": argv, "settings": settings} == as_parsed(words)


@pytest.mark.parametrize(
    "words",
    [
        ["true"],
        ["--", "-x"],
        ["-q", "--cpu", "0", "--timeout=60", "--", "true", "--json"],
        ["--pages", "2M", "-e", "tlb", "-e", "faults", "-o", "r.json", "true"],
    ],
)
def test_plain_command_lines_need_no_parser(words: list[str]) -> None:
    assert quick.arguments(words) is not None


@pytest.mark.parametrize(
    "words",
    [[], ["--help"], ["-q"], ["-qe", "tlb", "true"], ["--cpu", "0", "--cpu", "1", "true"], ["--node", "x", "true"]],
)
def test_the_rest_is_the_parsers(words: list[str]) -> None:
    assert quick.arguments(words) is None


def verdict_of_this_machine() -> dict[str, Any]:
    """What the probe would have stored."""
    found = VerdictFile(
        verdict=Verdict.INCONCLUSIVE,
        caches=[],
        measured_at="2026-01-01T00:00:00Z",
        machine=machine_hash(),
        boot_id=None,
        host="",
        cpu=None,
        virtualisation="none",
        pagelab=None,
        seed=1,
    )
    return found.model_dump(mode="json", by_alias=True)


@pytest.mark.parametrize("probed", [False, True])
def test_a_run_loads_no_library_but_pythons_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probed: bool) -> None:
    """What a run loads before the program starts, it waits for: the summary, too, is drawn without libraries, and a
    verdict that ``doctor --probe-colours`` left is read without its models.
    """
    if probed:
        (tmp_path / "colours.json").write_text(json.dumps(verdict_of_this_machine()))
        monkeypatch.setenv("PAGELAB_STATE_DIR", str(tmp_path))
        assert describe()["colour_verdict"] is not None
    code = (
        "import sys; sys.argv = ['pagelab', 'run', 'true']\n"
        "import pagelab.cli\n"
        "try: pagelab.cli.main()\n"
        "except SystemExit: pass\n"
        "import json; print(json.dumps(sorted(sys.modules)))"
    )
    environment = {**os.environ, "PAGELAB_STATE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stderr.startswith("ok  true"), done.stderr
    heavy = {
        "typer",
        "click",
        "pydantic",
        "rich",
        "polars",
        "numpy",
        "pagelab._native",
        "dataclasses",
        "tempfile",
        "uuid",
    }
    assert not heavy & set(json.loads(done.stdout))


def test_a_record_of_another_version_is_told(tmp_path: Path) -> None:
    launcher = tmp_path / "launcher"
    launcher.write_text(
        "#!/usr/bin/env python3\nimport os, sys\nopened = dict(word.split('=') for word in sys.argv[2:])\n"
        "os.read(int(opened['request'].partition(':')[0]), 1 << 20)\n"
        "os.write(int(opened['record']), b'{\"schema\": \"pagelab.record/9\"}\\n0\\n')\n"
    )
    launcher.chmod(0o755)
    words = [sys.executable, "-m", "pagelab", "run", "true"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, env=os.environ | {"PAGELAB_LAUNCHER": str(launcher)}
    )
    assert done.returncode == 4
    assert "it is of another version than this package" in done.stderr


@pytest.mark.parametrize("words", [["--timeout", "inf"], ["--timeout", "nan"]])
def test_a_timeout_without_an_end_is_refused(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-m", "pagelab", "run", *words, "true"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"not a number of seconds" in done.stderr


def test_a_command_that_is_not_utf8_is_refused() -> None:
    words = [os.fsencode(sys.executable), b"-m", b"pagelab", b"run", b"echo", b"\xff"]
    done = subprocess.run(words, capture_output=True, check=False)
    assert done.returncode == 2
    assert b"is not UTF-8" in done.stderr


@pytest.mark.parametrize(
    "words",
    [["try", "--pages", "4K", "--pages", "2M"], ["advise"], ["diagnose"], ["model", "run"], ["model", "kinds"]],
    ids=" ".join,
)
def test_commands_that_keep_files_refuse_it_before_they_make_a_directory(words: list[str], tmp_path: Path) -> None:
    """Regression: their files are in UTF-8, and the first that was written failed, in a directory that stayed."""
    line = [os.fsencode(sys.executable), b"-m", b"pagelab", *map(os.fsencode, words), b"--", b"echo", b"\xff"]
    done = subprocess.run(line, capture_output=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert b"is not UTF-8" in done.stderr
    assert b"Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
