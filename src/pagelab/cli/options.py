"""Options that several commands have: declared once, so that they read and mean the same everywhere."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from pagelab.errors import BadInputError

WHAT = "What runs"
MEASURE = "What is measured"
JUDGE = "How it is judged"
OUTPUT = "Output"

Cpu = Annotated[
    str | None,
    typer.Option("--cpu", metavar="LIST", help="Pin to these CPUs: 1, 0-3,8.", rich_help_panel=WHAT),
]
Timeout = Annotated[
    float | None,
    typer.Option("--timeout", metavar="SECONDS", help="End an execution after this long.", rich_help_panel=WHAT),
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
    typer.Option("--seed", help="Of everything drawn: the same seed gives the same digits.", rich_help_panel=JUDGE),
]


def cpus_of(text: str | None) -> list[int]:
    """``0-3,8`` → [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for part in (text or "").split(",") if text is not None else []:
        match = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part)
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise BadInputError(f"--cpu {text}: not a list of CPUs; write it as 1 or 0-3,8; they are listed by: lscpu")
        cpus.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return cpus


def on_off(text: str | None) -> bool | None:
    """What ``--aslr`` says."""
    if text not in (None, "on", "off"):
        raise BadInputError(f"--aslr {text}: allowed: on, off (without the flag it is left as it is)")
    return None if text is None else text == "on"
