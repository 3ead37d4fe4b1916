"""The man page, the completions and the examples of --help, all from the commands themselves."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from harness.packages import need
from pagelab.cli.manpage import COMPLETIONS, Command, commands, completion, page, write

SHARE = Path(__file__).parents[1] / "share"
ROOT = commands()
LEAVES = [command for command in ROOT.walk() if not command.children]
EXAMPLES = [(command.path, example) for command in LEAVES for example in command.examples]


@pytest.mark.parametrize("command", LEAVES, ids=lambda command: command.path)
def test_every_command_has_an_example_that_calls_it(command: Command) -> None:
    calls = [f"{example} " for example in command.examples if f"{command.path} " in f"{example} "]
    assert calls, f"{command.path} --help shows no example of it"


@pytest.mark.parametrize("command", list(ROOT.walk()), ids=lambda command: command.path)
def test_everything_has_a_help_text(command: Command) -> None:
    assert command.help.strip()
    assert not [one.names for one in (*command.arguments, *command.options) if not one.help.strip()]


def calls_in(example: str) -> list[list[str]]:
    """The words of each call of pagelab in a shell line, up to the program's own words."""
    lexer = shlex.shlex(example, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    calls: list[list[str]] = []
    for word in lexer:
        if word == "pagelab":
            calls.append([])
        elif set(word) <= set("|&;<>"):
            calls.append(["--"])
        elif calls and "--" not in calls[-1]:
            calls[-1].append(word)
    return [words for words in calls if words and words[0] != "--"]


@pytest.mark.parametrize(("path", "example"), EXAMPLES, ids=[example for _, example in EXAMPLES])
def test_examples_use_options_that_exist(path: str, example: str) -> None:
    calls = calls_in(example)
    assert calls, f"an example of {path} does not call pagelab: {example}"
    for words in calls:
        command = ROOT
        while command.children:
            command = next(child for child in command.children if child.path == f"{command.path} {words[0]}")
            words = words[1:]
        known = {name for option in command.options for name in option.names} | {"--help"}
        used = {word.partition("=")[0] for word in words if word.startswith("-") and word not in ("-", "--")}
        assert used <= known, f"{command.path} has no {used - known}"


def test_page_names_every_command_and_option() -> None:
    text = page(ROOT).replace("\\-", "-")
    for command in list(ROOT.walk())[1:]:
        assert f'.SS "{command.path} ' in text
        for option in command.options:
            assert f"\\fB{option.names[0]}\\fR" in text


def test_page_is_clean_roff(tmp_path: Path) -> None:
    source = tmp_path / "pagelab.1"
    source.write_text(page(ROOT))
    done = subprocess.run(
        [need("groff"), "-K", "utf8", "-man", "-ww", "-Tutf8", str(source)], capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    assert "EXIT STATUS" in re.sub(".\b", "", done.stdout)


@pytest.mark.parametrize("shell", COMPLETIONS)
def test_completion_scripts_are_written_for_this_program(shell: str) -> None:
    assert "_PAGELAB_COMPLETE" in completion(shell)


def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    script = tmp_path / "pagelab.bash"
    script.write_text(completion("bash"))
    program = tmp_path / "pagelab"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.argv[0] = 'pagelab'\nfrom pagelab.cli import main\nmain()\n"
    )
    program.chmod(0o755)

    def complete(*words: str) -> list[str]:
        line = (
            f"source {script}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; "
            f"_pagelab_completion {program}; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        )
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True, env=env)
        return done.stdout.split()

    assert complete("pagelab", "doc") == ["doctor"]
    assert "--restore" in complete("pagelab", "doctor", "--re")


def test_all_files_land_where_a_share_directory_has_them(tmp_path: Path) -> None:
    names = {str(path.relative_to(tmp_path)) for path in write(tmp_path)}
    assert names == {"man/man1/pagelab.1", *COMPLETIONS.values()}
    stale = [name for name in names if (SHARE / name).read_text() != (tmp_path / name).read_text()]
    assert not stale, "run: make man"
