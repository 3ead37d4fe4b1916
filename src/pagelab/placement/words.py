"""Sizes of pages and of memory in words, for the table, the pictures and a printed map."""

from __future__ import annotations

from rich.text import Text

from ..record import SizeBytes

_WHEN = {"exit": "just before it ended", "peak": "when it had most", "now": "now"}


def size(count: int) -> str:
    """Bytes as text with a binary unit and at most three digits: ``4K``, ``1.5M``, ``2.25G``."""
    value = float(count)
    for unit in ("B", "K", "M", "G", "T"):
        if value < 999.5 or unit == "T":
            text = f"{value:.0f}" if value >= 99.95 or unit == "B" else f"{value:.3g}"
            return f"{text}{unit}"
        value /= 1024
    raise AssertionError


def page_size(count: int) -> str:
    """The name of a page size; 0 means an unknown size."""
    if count == 0:
        return "unknown"
    for shift, unit in ((30, "G"), (20, "M"), (10, "K")):
        if count >> shift << shift == count and count >> shift:
            return f"{count >> shift}{unit}"
    return str(count)


def process(pid: int, command: str, moment: str, by_size: list[SizeBytes]) -> str:
    """One line of text: a process, and its resident memory by page size."""
    parts = [f"{size(entry.bytes)} in {page_size(entry.page_bytes)} pages" for entry in by_size]
    total = size(sum(entry.bytes for entry in by_size))
    return f"process {pid} ({command}) {_WHEN[moment]}: {total} resident: {', '.join(parts) or 'nothing'}"


def sizes(entries: list[SizeBytes], *, shares: bool = True) -> Text:
    """``4K: 1.2M · 2M: 512M (99.8%)``: bytes by page size, with shares where there are several sizes."""
    total = sum(entry.bytes for entry in entries)
    text = Text()
    for entry in entries:
        if text:
            text.append(" · ")
        share = f" ({entry.bytes / total:.1%})" if shares and len(entries) > 1 else ""
        text.append(
            f"{page_size(entry.page_bytes)}: ", style="bold" if entry.page_bytes > entries[0].page_bytes else ""
        )
        text.append(f"{size(entry.bytes)}{share}")
    return text
