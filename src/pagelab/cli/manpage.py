"""The man page and shell completions, generated from the commands themselves.

``python -m pagelab.cli.manpage DIR`` (or ``make man``) writes, below DIR, ``man/man1/pagelab.1`` and completions for
bash, zsh and fish, in the places where ``/usr/local/share`` has them.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMPLETIONS = {
    "bash": "bash-completion/completions/pagelab",
    "zsh": "zsh/site-functions/_pagelab",
    "fish": "fish/vendor_completions.d/pagelab.fish",
}
_SHELL_MADE = ("--install-completion", "--show-completion")


@dataclass(frozen=True)
class Parameter:
    """An option or an argument as the page shows it."""

    names: tuple[str, ...]
    metavar: str
    help: str


@dataclass(frozen=True)
class Command:
    """A command with its parameters, as described by its own help."""

    path: str
    help: str
    arguments: tuple[Parameter, ...] = ()
    options: tuple[Parameter, ...] = ()
    children: tuple[Command, ...] = field(default=())

    def walk(self) -> Iterator[Command]:
        """This command and all below it, in the order of the help."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def examples(self) -> tuple[str, ...]:
        """The example command lines."""
        _before, heading, after = re.split(r"(\*\*Examples?\*\*)", f"{self.help} **Example**", maxsplit=1)
        del heading
        lines = after.removesuffix("**Example**").splitlines()
        return tuple(line.strip() for line in lines if line.startswith("    "))


def commands() -> Command:
    """The whole command tree. Raises what a command's module raises when it cannot be imported."""
    import typer

    from pagelab.cli.commands import app

    root = typer.main.get_command(app)
    return _describe(root, "pagelab", typer.Context(root, info_name="pagelab"))


def _describe(command: Any, path: str, context: Any) -> Command:
    shown = [one for one in command.params if not getattr(one, "hidden", False)]
    children = []
    if hasattr(command, "list_commands"):
        found = [(name, command.get_command(context, name)) for name in command.list_commands(context)]
        children = [_describe(child, f"{path} {name}", context) for name, child in found if not child.hidden]
    return Command(
        path,
        command.help or "",
        tuple(_argument(one) for one in shown if one.param_type_name == "argument"),
        tuple(_option(one) for one in shown if one.param_type_name == "option"),
        tuple(children),
    )


def _argument(parameter: Any) -> Parameter:
    name = parameter.metavar or parameter.name.upper()
    return Parameter((name,), "", parameter.help or "")


def _option(parameter: Any) -> Parameter:
    names = (*parameter.opts, *parameter.secondary_opts)
    flag = bool(getattr(parameter, "is_flag", False)) or set(names) & set(_SHELL_MADE)
    metavar = "" if flag else (parameter.metavar or _type_name(parameter))
    return Parameter(names, metavar, parameter.help or "")


def _type_name(parameter: Any) -> str:
    """The placeholder of an option without a metavar; typer's own names changed between versions."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    return {int: "NUMBER", float: "NUMBER", Path: "PATH"}.get(kind, "TEXT") if isinstance(kind, type) else "VALUE"


def page(root: Command) -> str:
    """The page as roff source (man(7) macros, UTF-8)."""
    from pagelab.machine.provenance import pagelab_version

    summary = root.help.splitlines()[0].rstrip(".")
    parts = [
        f'.TH PAGELAB 1 "" "pagelab {pagelab_version() or ""}" "User Commands"',
        ".SH NAME",
        f"pagelab \\- {_inline(summary[0].lower() + summary[1:])}",
        ".SH SYNOPSIS",
        *(f'.B {_escape(child.path)}\n.RI [ options ] " {_escape(_usage(child))}"\n.br' for child in root.children),
        ".SH DESCRIPTION",
        *_prose(root.help),
        *_parameters(root.options),
        ".SH COMMANDS",
    ]
    for command in list(root.walk())[1:]:
        parts += [f'.SS "{_escape(command.path)} {_escape(_usage(command))}"', *_prose(command.help)]
        parts += _parameters(command.arguments) + _parameters(command.options)
    return "\n".join([*parts, _TAIL]) + "\n"


def _usage(command: Command) -> str:
    return "COMMAND" if command.children else " ".join(one.names[0] for one in command.arguments)


def _parameters(parameters: tuple[Parameter, ...]) -> list[str]:
    lines = []
    for one in parameters:
        names = ", ".join(f"\\fB{_escape(name)}\\fR" for name in one.names)
        value = f" \\fI{_escape(one.metavar)}\\fR" if one.metavar else ""
        lines += [".TP", f"{names}{value}", _inline(one.help) or "\\&"]
    return lines


def _prose(text: str) -> list[str]:
    """Paragraphs, indented examples, and headings in bold, of a command's help."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        if all(line.startswith("    ") for line in block.splitlines()):
            lines += [".PP", ".RS 4", ".nf", *(_escape(line[4:]) for line in block.splitlines()), ".fi", ".RE"]
        elif block.startswith(("- ", "* ")):
            items = re.split(r"\n?(?:^|\n)[-*] ", block)[1:]
            lines += [line for item in items for line in ('.IP "\\(bu" 2', _inline(" ".join(item.split())))]
        else:
            lines += [".PP", _inline(" ".join(block.split()))]
    return lines


def _inline(text: str) -> str:
    """Markdown's bold and code as bold."""
    escaped = _escape(" ".join(text.split()))
    return re.sub(r"\*\*(.+?)\*\*|`(.+?)`", lambda found: f"\\fB{found[1] or found[2]}\\fR", escaped)


def _escape(text: str) -> str:
    """Literal text: backslashes, hyphens as typed (they get copied into shells), and no control line by accident."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


_TAIL = r"""
.SH EXIT STATUS
.TP
.B 0
Done; a negative result, as \(lqno difference found\(rq, is not a failure.
.TP
.B 1
The measured program failed, or runs of a study failed; results are kept.
.TP
.B 2
Bad input: options, TOML, CSV, files.
.TP
.B 3
The machine cannot do what was asked.
.TP
.B 4
pagelab itself failed.
.TP
.B 130
Interrupted.
.SH ENVIRONMENT
.TP
.BR PAGELAB_LIBRARY ", " PAGELAB_LAUNCHER ", " PAGELAB_WORKLOAD
Paths of the native parts, instead of the installed ones.
.TP
.B PAGELAB_JOURNAL
The settings journal, instead of the file below.
.TP
.B PAGELAB_STATE_DIR
Where the verdict on cache colours is kept, instead of the directories below.
.SH FILES
.TP
.I /run/pagelab/journal.jsonl
Settings that pagelab changed on this machine and has not restored; see \fBpagelab doctor \-\-restore\fR.
.TP
.IR /var/lib/pagelab/colours.json ", " $XDG_STATE_HOME/pagelab/colours.json
Whether frame numbers reach this machine's caches, as \fBpagelab doctor \-\-probe\-colours\fR found.
.SH SEE ALSO
.BR madvise (2),
.BR perf_event_open (2),
.BR proc (5)""".strip("\n")


def completion(shell: str) -> str:
    """The completion script of a shell: ``bash``, ``zsh`` or ``fish``."""
    environment = {**os.environ, "_PAGELAB_COMPLETE": f"source_{shell}"}
    program = "import sys; sys.argv = ['pagelab']; from pagelab.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip("\n") + "\n"


def write(directory: Path) -> list[Path]:
    """Write all files below ``directory``; returns them."""
    files = {"man/man1/pagelab.1": page(commands())}
    files |= {name: completion(shell) for shell, name in COMPLETIONS.items()}
    written = []
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written.append(path)
    return written


if __name__ == "__main__":
    for file in write(Path(sys.argv[1] if len(sys.argv) > 1 else "share")):
        print(file)
