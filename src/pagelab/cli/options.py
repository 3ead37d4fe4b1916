"""Options that several commands share, declared once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from pagelab.cli.times import minutes as minutes_of
from pagelab.cli.times import seconds as seconds_of
from pagelab.errors import BadInputError

if TYPE_CHECKING:
    from pagelab.study.claim import Claimed

WHAT = "What runs"
MEASURE = "What is measured"
JUDGE = "How it is judged"
OUTPUT = "Output"
SETTINGS = "Settings: given once for all that is run, or one of them twice or more, to be compared"

Pages = Annotated[
    list[str] | None,
    typer.Option("--pages", metavar="SIZES", help="kernel, 4K, 2M, heap=2M ...", rich_help_panel=SETTINGS),
]
"""This and those up to :data:`Variables`: settings of which one is given several times, to be compared; those of the
run follow (:func:`pagelab.cli.run_settings.compared`)."""
Fetch = Annotated[
    list[str] | None,
    typer.Option("--fetch", metavar="WHEN", help="kernel, demand, prefault, willneed ...", rich_help_panel=SETTINGS),
]
Frames = Annotated[
    list[str] | None,
    typer.Option(
        "--frames", metavar="WHERE", help="kernel, page-coloring, random ... (root).", rich_help_panel=SETTINGS
    ),
]
Backends = Annotated[
    list[str] | None,
    typer.Option(
        "--backend",
        metavar="library|kernel|auto",
        help="What places frames; needs --frames or --policy beside it.",
        rich_help_panel=SETTINGS,
    ),
]
Policies = Annotated[
    list[Path] | None, typer.Option("--policy", metavar="FILE", help="A policy in TOML.", rich_help_panel=SETTINGS)
]
Variables = Annotated[
    list[str] | None,
    typer.Option(
        "--env",
        metavar="NAME=VALUE",
        help="A variable: the same name twice compares two values; others apply to all executions.",
        rich_help_panel=SETTINGS,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        parser=seconds_of,
        metavar="SECONDS",
        help="End an execution after this long.",
        rich_help_panel=WHAT,
    ),
]
MeasureRegex = Annotated[
    str | None,
    typer.Option(
        "--measure-regex",
        metavar="REGEX",
        help="Find measurements in the output: groups value, and name, unit.",
        rich_help_panel=MEASURE,
    ),
]
Level = Annotated[float, typer.Option("--level", help="Confidence level.", rich_help_panel=JUDGE)]
Seed = Annotated[
    int,
    typer.Option("--seed", help="Seed of all draws: the same seed gives the same digits.", rich_help_panel=JUDGE),
]
Minutes = Annotated[
    float, typer.Option("--minutes", "-m", parser=minutes_of, metavar="N", help="Time to spend.", rich_help_panel=WHAT)
]
CoRun = Annotated[
    bool,
    typer.Option(
        "--co-run",
        help="Run both of a pair at once on one processor, compare processor time; shared caches then count as well.",
        rich_help_panel=WHAT,
    ),
]
OneMetric = Annotated[
    str | None,
    typer.Option(
        "--metric",
        metavar="NAME",
        help="wall_s, cpu_s, measure.NAME ... (default: wall_s, or cpu_s if it only waits for a processor).",
        rich_help_panel=MEASURE,
    ),
]


def command_words(context: typer.Context, argv: list[str] | None) -> list[str] | None:
    """The command; raises BadInputError for a word, or a working directory, that no file in UTF-8 can hold, and for a
    whole command in one pair of quotes.
    """
    from pagelab.cli.quoted import refuse_quoted

    if not context.resilient_parsing:
        refuse_quoted(argv or (), context.command_path)
    words = [*(("the command has", word) for word in argv or ()), ("the working directory is", str(Path.cwd()))]
    for what, word in words if argv else ():
        if any("\ud800" <= letter <= "\udfff" for letter in word):
            name = os.fsencode(word)
            raise BadInputError(f"{what} {name!r}, which is not UTF-8, as the files of a study are; rename it")
    return argv


Argv = Annotated[
    list[str],
    typer.Argument(metavar="[--] CMD...", help="The program and its arguments.", callback=command_words),
]


def checked(*, seed: int, minutes: float, level: float = 0.95, most_minutes: int | None = None) -> None:
    """Raises BadInputError for a seed, a time or a level outside of its range."""
    from pagelab.study.budget import MOST_OF_A_COMMAND

    most_minutes = most_minutes or MOST_OF_A_COMMAND
    if not 0.5 < level <= 0.9999:
        raise BadInputError(f"--level {level}: not above 0.5, up to 0.9999")
    if not 0 <= seed < 2**63:
        raise BadInputError(f"--seed {seed}: not within 0 ... 2**63 - 1")
    if not 0.05 <= minutes <= most_minutes:
        raise BadInputError(f"--minutes {minutes:g}: not within 0.05 ... {most_minutes}")


def one_of(option: str, given: str, literal: Any) -> None:
    """Raises BadInputError for a value that is not one of the Literal type's."""
    if given not in get_args(literal):
        raise BadInputError(f"{option} {given}: allowed: {', '.join(get_args(literal))}")


def described(processor: str | None) -> str | None:
    """The value of ``--processor``: the absolute path of a file, or the name of a preset."""
    return str(Path(processor).resolve()) if processor is not None and processor.endswith(".toml") else processor


def free_directory(into: Path | None, name: str, suffix: str, hint: str, first: str) -> Claimed:
    """``--into``; without it, NAME with the suffix and, if that exists, a number. ``hint``: advice if not empty.

    It is claimed by the folder ``first`` in it (:func:`pagelab.study.claim.claim`).
    """
    from pagelab.study.claim import claim

    if into is not None:
        named = claim(into, first)
        if named is None:
            raise BadInputError(f"--into {into}: {hint}")
        return named
    number = 1
    while True:
        path = Path(f"{name}{suffix}" if number == 1 else f"{name}-{number}{suffix}")
        found = None if path.exists() else claim(path, first, new=True)
        if found is not None:
            return found
        number += 1


def on_off(text: str | None) -> bool | None:
    """The value of ``--aslr``."""
    if text not in (None, "on", "off"):
        raise BadInputError(f"--aslr {text}: allowed: on, off (without the flag it is left as it is)")
    return None if text is None else text == "on"
