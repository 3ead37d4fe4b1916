"""Reads ``/proc/page_color``: counts by strategy of a kernel with page placement (``kernel/``)."""

from __future__ import annotations

from .sysfs import Tree

PATH = "/proc/page_color"
HINTS = "/proc/self/page_hints"

Counts = dict[str, dict[str, int]]
"""Strategy → word → count. Counts are pages, but ``scanned``, ``longest`` free-list entries and ``drained`` times."""


_NONE = "usual"
"""Always there: it leaves frames to the kernel, for hints on paging alone."""


def placing(counts: Counts) -> Counts:
    """The counts of the strategies that place frames."""
    return {name: one for name, one in counts.items() if name != _NONE}


def parse(text: str) -> Counts:
    """The counts in the file's text; ``orders`` become ``order_0``, ``order_1`` … Other lines are ignored."""
    found: Counts = {}
    for line in text.splitlines():
        words = line.split()
        if not words:
            continue
        try:
            found[words[0]] = _counts(words[1:])
        except ValueError:
            continue
    return found


def _counts(words: list[str]) -> dict[str, int]:
    pairs: list[str] = words
    orders: list[str] = []
    if "orders" in words:
        sign = words.index("orders")
        pairs, orders = words[:sign], words[sign + 1 :]
    if len(pairs) % 2:
        raise ValueError(pairs)
    counts = {word: int(count) for word, count in zip(pairs[::2], pairs[1::2], strict=True)}
    return counts | {f"order_{order}": int(count) for order, count in enumerate(orders)}


def read(tree: Tree) -> Counts | None:
    """The counts since boot; ``None`` on a kernel without page placement. Raises ``OSError`` for other failures."""
    try:
        return parse(tree.text(PATH))
    except FileNotFoundError:
        return None
