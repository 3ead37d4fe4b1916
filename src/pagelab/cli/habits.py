"""Conventions of every command line of pagelab: help, version, spellings, and errors of usage.

``-h`` and ``-V`` everywhere; British and American spelling; commands and options that are nearly right are named;
with ``--json`` standard output has nothing else;
an option that is given twice is refused where only its last value would count; a mistake is one line with the next
command.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import typer

from pagelab import terminal
from pagelab.errors import PagelabError
from pagelab.spelling import meant

CONTEXT: dict[str, Any] = {
    "help_option_names": ["-h", "--help"],
    "token_normalize_func": lambda token: token.replace("colour", "color"),
}
"""For the root: contexts of commands inherit it."""
# Typer brings its own copy of click, in a place that is not public.
MISTAKE: type[Exception] = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""A command line that cannot be understood."""
REFUSED = "pagelab_refused"
"""Attribute of a command's function: a function of the parsed words, the remaining words and the context. It raises
BadInputError for command lines of which the parser's own error would not say what was meant."""
_LISTINGS = {"pagelab doctor --fix": "--keys"}
"""Command and option → the option that lists the allowed values, for errors of the command line."""
_PLACES = ("--into", "--out")
"""Options that name the directory of a command's results."""


def adapt(command: Any) -> Any:
    """Adds these conventions to a command (of click's kind) and to all commands below it; returns the command."""
    if getattr(command, "pagelab_habits", False):
        return command
    command.pagelab_habits = True
    if hasattr(command, "resolve_command"):
        _adapt_group(command)
    if not any("--version" in one.opts for one in command.params):
        command.params.append(_version())
    _name_no_value(command)
    _name_another_directory(command)
    make_parser = command.make_parser

    def strict(context: Any) -> Any:
        parser = make_parser(context)
        parse_args = parser.parse_args

        def parse(args: list[str]) -> Any:
            try:
                values, rest, order = parse_args(args=args)
            except MISTAKE as error:
                _name_the_nearest(error, command, context)
                raise
            _refuse_repeated(order, context)
            refuse = getattr(command.callback, REFUSED, None)
            if refuse is not None:
                refuse(values, rest, context)
            if any("--json" in one.opts and values.get(one.name) for one in command.params):
                terminal.only_json()
            return values, rest, order

        parser.parse_args = parse
        return parser

    command.make_parser = strict
    return command


def _name_no_value(command: Any) -> None:
    """Removes typer's ``<bool>`` after flags in help texts."""
    get_params = command.get_params

    def without(context: Any) -> Any:
        found = get_params(context)
        for one in found:
            if getattr(one, "is_flag", False):
                one.metavar = ""
        return found

    command.get_params = without


def _name_another_directory(command: Any) -> None:
    """Adds the option for another directory to errors that another directory would avoid, if the command has it."""
    invoke = command.invoke
    options = {opt: one.metavar for one in command.params for opt in one.opts if opt in _PLACES}

    def invoked(context: Any) -> Any:
        try:
            return invoke(context)
        except PagelabError as error:
            option = next((place for place in _PLACES if place in options), None)
            if error.another_would_do and option:
                error.args = (f"{error}; or choose another directory with: {option} {options[option]}",)
            raise

    command.invoke = invoked


def _adapt_group(command: Any) -> None:
    get_command = command.get_command
    command.suggest_commands = False  # typer's own, which does not know the names of commands that are not loaded yet

    def adapted(context: Any, name: str) -> Any:
        found = get_command(context, name)
        if found is not None:
            return adapt(found)
        if context.resilient_parsing or name.startswith("-"):
            return None
        known = command.list_commands(context)
        context.fail(
            f"there is no command {context.command_path} {name}{meant(name, known) or '; known: ' + ', '.join(known)}"
        )
        return None

    command.get_command = adapted


def _version() -> Any:
    """A hidden option -V for a command; the help of pagelab documents -V."""
    probe = typer.Typer(add_completion=False)

    def shown(
        _version: bool = typer.Option(False, "--version", "-V", callback=show_version, is_eager=True, hidden=True),
    ) -> None:
        pass

    probe.command()(shown)
    option = typer.main.get_command(probe).params[0]
    option.expose_value = False
    return option


def show_version(wanted: bool) -> None:
    """Prints the version and exits."""
    if wanted:
        from importlib.metadata import version

        typer.echo(f"pagelab {version('pagelab')}")
        raise typer.Exit


def _name_the_nearest(error: Any, command: Any, context: Any) -> None:
    if getattr(error, "ctx", None) is None:
        error.ctx = context  # an option without its argument comes without
    name = getattr(error, "option_name", None)
    if name is None or type(error).__name__ != "NoSuchOption":
        return
    known = [one for parameter in command.get_params(context) for one in (*parameter.opts, *parameter.secondary_opts)]
    options = [one for one in known if one.startswith("--")]
    error.message = f"there is no option {name}{meant(name, options)}"
    error.possibilities = None


def _refuse_repeated(order: list[Any], context: Any) -> None:
    for parameter, times in Counter(order).items():
        if (
            parameter.param_type_name == "option"
            and times > 1
            and not (parameter.multiple or getattr(parameter, "count", False))
        ):
            context.fail(f"{parameter.opts[0]} is given {times} times, and only one value can count; give it once")


def _allowed(error: Any) -> str:
    """What an option allows that is missing, where that is a processor."""
    name = getattr(getattr(error, "param", None), "name", None)
    if type(error).__name__ != "MissingParameter" or name not in ("processor", "hierarchy"):
        return ""
    from pagelab.simulate.hardware import presets

    return f"; allowed: {', '.join(presets())}, or a TOML file"


def answer(error: Any) -> int:
    """Reports an error of the command line in one line with the next command; returns the exit code."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return int(error.exit_code)
    message = str(error.format_message()).strip().rstrip(".") + _allowed(error)
    path = context.command_path if context else "pagelab"
    listing = _LISTINGS.get(f"{path} {getattr(error, 'option_name', None)}", "--help")
    terminal.say(f"pagelab: {message[:1].lower()}{message[1:]}; see: {path} {listing}\n")
    return int(error.exit_code)
