"""The documentation's lines: ``python -m tools.docs_lines`` wraps those that are too wide, ``--check`` lists them.

The limit is 120 columns, for ``*.md`` in the root, under ``docs``, ``fuzz`` and ``kernel`` (programs write what is in
``bench/results``). Three kinds of line may be wider, because Markdown cannot break them: rows of tables, fenced code
(output is shown as it was printed), and single words (links). A paragraph or an item of a list is wrapped as a
whole, and only if one of its lines is too wide.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

COLUMNS = 120
FENCE = re.compile(r" *(```|~~~)")
ITEM = re.compile(r" *([-*+]|\d+[.)]) +")
QUOTE = re.compile(r"(> )?")
START = re.compile(rf"({QUOTE.pattern})({ITEM.pattern}| *)")  # of a block
ALONE = re.compile(r" *(#|\||<|$|\[[^\]]+\]:|---)")  # headings, rows of tables, HTML, blanks, link targets, rules
# A line that began with one of these would be a heading, an item, a quotation or a row of a table.
MARKUP = re.compile(r"([-*+#>|=]|\d+[.)]$)")
# Code spans and links stay on one line where they are short.
WORD = re.compile(r"(?:`[^`\n]{1,110}`|\[[^\]\n]{1,40}\]\([^)\s]*\)|\S)+")


def blocks(text: str) -> Iterator[tuple[int, list[str], bool]]:
    """(number of the first line, lines, may be wrapped) of every block; the lines of all blocks are the text."""
    number, block, fenced = 1, list[str](), False
    start = 1
    for number, line in enumerate(text.splitlines(), 1):
        opens = FENCE.match(line) is not None
        alone = fenced or opens or ALONE.match(line) is not None
        fenced ^= opens
        if block and (alone or ITEM.match(line.removeprefix("> "))):
            yield start, block, True
            block = []
        if alone:
            yield number, [line], False
            continue
        start = start if block else number
        block.append(line)
    if block:
        yield start, block, True


def wrapped(block: list[str]) -> list[str]:
    """The block's words on lines of at most 120 columns, each line under the first one's text."""
    first = START.match(block[0]).group()  # type: ignore[union-attr]
    indent = QUOTE.match(first).group()  # type: ignore[union-attr]
    indent += " " * (len(first) - len(indent))
    text = " ".join([block[0][len(first) :], *(line.removeprefix(indent.rstrip() or indent) for line in block[1:])])
    lines, line = list[str](), first
    for word in unbroken(WORD.findall(text)):
        if line in (first, indent):
            line += word
        elif len(line) + 1 + len(word) <= COLUMNS:
            line += f" {word}"
        else:
            lines, line = [*lines, line], indent + word
    return [*lines, line]


def unbroken(words: list[str]) -> list[str]:
    """The words, each that would be markup at the beginning of a line with the word before it."""
    joined = words[:1]
    for word in words[1:]:
        if MARKUP.match(word):
            joined[-1] += f" {word}"
        else:
            joined.append(word)
    return joined


def too_wide(text: str) -> list[int]:
    """Numbers of the lines above the limit that could be wrapped."""
    return [
        number
        for start, block, may in blocks(text)
        for number, line in enumerate(block, start)
        if may and len(line) > COLUMNS and len(line.split()) > 1
    ]


def rewrapped(text: str) -> str:
    """The text with every block wrapped that has a line above the limit."""
    lines = list[str]()
    for _, block, may in blocks(text):
        lines += wrapped(block) if may and any(len(line) > COLUMNS for line in block) else block
    return "\n".join(lines) + "\n"


def pages(root: Path) -> list[Path]:
    """The pages with this limit."""
    return sorted([*root.glob("*.md"), *root.glob("docs/**/*.md"), *root.glob("fuzz/*.md"), *root.glob("kernel/*.md")])


def main(arguments: list[str]) -> int:
    """Wraps the pages, or lists the lines that are too wide; 1 if there are any."""
    parser = argparse.ArgumentParser(prog="python -m tools.docs_lines", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(), help="the tree to read (this one)")
    parser.add_argument("--check", action="store_true", help="write nothing, list the lines that are too wide")
    options = parser.parse_args(arguments)
    wide = 0
    for page in pages(options.root):
        text = page.read_text()
        if not options.check:
            page.write_text(rewrapped(text))
            continue
        numbers = too_wide(text)
        wide += len(numbers)
        for number in numbers:
            print(f"{page}:{number}: wider than {COLUMNS} columns; run: python -m tools.docs_lines")
    return int(wide > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
