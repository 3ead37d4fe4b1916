"""Tables of simulated rates in the documentation, each between ``<!-- NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/diagnose.md"


def table(heads: list[str], rows: Iterator[list[str]]) -> str:
    """The table in Markdown."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(percent: float, *, wanted: float = 0.0) -> str:
    """A percentage as text, bold if below ``wanted``."""
    text = f"{percent:.1f}"
    return f"**{text}**" if percent < wanted else text


def put(name: str, text: str, document: Path = DOCUMENT) -> None:
    """Puts one table into a document; ends the program if the document has no place for it."""
    place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
    whole, found = place.subn(lambda match: f"{match[1]}\n{text}\n\n{match[2]}", document.read_text(encoding="utf-8"))
    if not found:
        raise SystemExit(f"{document} has no place for the table: <!-- {name} -->")
    document.write_text(whole, encoding="utf-8")


def main(program: str, description: str | None, tables: Callable[[int], Mapping[str, Callable[[], str]]]) -> None:
    """Makes all tables of docs/diagnose.md, or one, prints them and puts them into the document."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--trials", type=int, default=150, help="simulated for each figure")
    parser.add_argument("--only", metavar="TABLE", help="one of the tables, by its name in the document")
    arguments = parser.parse_args()
    for name, make in tables(arguments.trials).items():
        if arguments.only in (None, name):
            text = make()
            print(f"\n{name}\n{text}", flush=True)
            put(name, text)


def experiments_of(program: str, description: str | None, help: str) -> argparse.Namespace:  # noqa: A002
    """``--experiments``, ``--jobs`` and ``--seed`` of a simulation that is spread over processes."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--experiments", type=int, default=500, help=help)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()
