"""Makes text with the statistics of natural language: words by Zipf's law, typical followers, sentences, paragraphs."""

from __future__ import annotations

from . import Draw

_ONSETS = [
    "",
    "b",
    "br",
    "c",
    "cl",
    "d",
    "f",
    "g",
    "gr",
    "h",
    "l",
    "m",
    "n",
    "p",
    "pr",
    "qu",
    "r",
    "s",
    "st",
    "t",
    "th",
]
_NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ou", "io"]
_CODAS = ["", "", "", "l", "n", "r", "s", "t", "nd", "st", "ck", "ng"]


def vocabulary(draw: Draw, count: int) -> list[str]:
    """``count`` different words, short ones first as in every language."""
    words: dict[str, None] = {}
    while len(words) < count:
        syllables = 1 + min(3, len(words) * 4 // count + draw.below(2))
        word = "".join(draw.one(_ONSETS) + draw.one(_NUCLEI) + draw.one(_CODAS) for _ in range(syllables))
        words[word] = None
    return list(words)


def make_text(seed: int, size_bytes: int) -> bytes:
    """About ``size_bytes`` of ASCII text (at most a paragraph more)."""
    draw = Draw(seed, "text")
    words = vocabulary(draw, 4000)
    followers = [[_zipf(draw, len(words)) for _ in range(8)] for _ in words]
    paragraphs: list[str] = []
    made = 0
    while made < size_bytes:
        paragraph = " ".join(_sentence(draw, words, followers) for _ in range(draw.between(3, 9)))
        paragraphs.append(paragraph)
        made += len(paragraph) + 2
    return "\n\n".join(paragraphs).encode("ascii") + b"\n"


def _zipf(draw: Draw, count: int) -> int:
    """A rank below ``count`` whose frequency falls as 1/rank: its logarithm is uniform."""
    bits = count.bit_length() - 1
    low = 1 << draw.below(bits + 1)
    return min(low + draw.below(low), count) - 1


def _sentence(draw: Draw, words: list[str], followers: list[list[int]]) -> str:
    place = _zipf(draw, len(words))
    chosen = []
    for _ in range(draw.between(4, 22)):
        chosen.append(words[place] + ("," if draw.chance(6) else ""))
        # A word has few frequent followers; text compressors rely on that.
        place = draw.one(followers[place]) if draw.chance(60) else _zipf(draw, len(words))
    if draw.chance(10):
        chosen.append(str(draw.below(10_000)))
    sentence = " ".join(chosen).rstrip(",")
    return sentence[0].upper() + sentence[1:] + draw.one(".....?!")
