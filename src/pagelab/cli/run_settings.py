"""Settings of a run as options. The contract's request declares the settings; nothing repeats them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any

import typer

from pagelab.cli.options import SETTINGS, WHAT
from pagelab.cli.settings import FLAGS
from pagelab.cli.times import seconds as seconds_of
from pagelab.contract.rows import RunSetting

_PARAMETER = "settings"
"""Of a command: it gets what was typed, by flag, and stands where the options are listed."""
_TYPES: dict[str, type] = {"number": int, "seconds": float}


def once(command: Callable[..., None]) -> Callable[..., None]:
    """Gives ``command`` an option for each setting of a run; ``settings``: flag → the value that was typed, or None."""
    return _with_options(command, {flag: (_option(one), _TYPES.get(one.kind, str)) for flag, one in FLAGS.items()})


def compared(command: Callable[..., None]) -> Callable[..., None]:
    """As :func:`once`, for the settings whose values can be compared: each option may be given several times."""
    several = {
        flag: typer.Option(f"--{flag}", metavar=one.metavar, help=one.compared, rich_help_panel=SETTINGS)
        for flag, one in FLAGS.items()
        if one.compared
    }
    return _with_options(command, {flag: (option, list[str]) for flag, option in several.items()})


def _option(one: RunSetting) -> Any:
    read = seconds_of if one.kind == "seconds" else None
    return typer.Option(f"--{one.flag}", parser=read, metavar=one.metavar, help=one.help, rich_help_panel=WHAT)


def parameter_of(flag: str) -> str:
    """The flag's parameter in Python."""
    return flag.replace("-", "_")


def _with_options(command: Callable[..., None], options: dict[str, tuple[Any, Any]]) -> Callable[..., None]:
    own = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for one in own.parameters.values():
        if one.name != _PARAMETER:
            parameters.append(one)
            continue
        parameters += [
            one.replace(name=parameter_of(flag), default=None, annotation=Annotated[kind | None, option])
            for flag, (option, kind) in options.items()
        ]

    @functools.wraps(command)
    def with_options(**given: Any) -> None:
        typed = {flag: given.pop(parameter_of(flag)) for flag in options}
        command(**given, **{_PARAMETER: typed})

    with_options.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
    with_options.__annotations__ = {one.name: one.annotation for one in parameters}
    return with_options
