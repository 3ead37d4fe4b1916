"""Tables of simulated rates in docs/diagnose.md, each between ``<!-- NAME -->`` and ``<!-- end -->``."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

DOCUMENT = Path(__file__).parents[2] / "docs/diagnose.md"


def table(heads: list[str], rows: Iterator[list[str]]) -> str:
    """In Markdown."""
    lines = [heads, ["---", *["--:"] * (len(heads) - 1)], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def cell(percent: float, *, wanted: float = 0.0) -> str:
    """Bold below what is wanted."""
    text = f"{percent:.1f}"
    return f"**{text}**" if percent < wanted else text


def write(tables: Mapping[str, Callable[[], str]], only: str | None) -> None:
    """Makes all tables, or one, prints them and puts them into the document."""
    for name, make in tables.items():
        if only not in (None, name):
            continue
        text = make()
        print(f"\n{name}\n{text}", flush=True)
        place = re.compile(rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)", flags=re.DOTALL)
        document, found = place.subn(lambda match, text=text: f"{match[1]}\n{text}\n\n{match[2]}", DOCUMENT.read_text())
        if not found:
            raise SystemExit(f"{DOCUMENT} has no place for the table: <!-- {name} -->")
        DOCUMENT.write_text(document)
