"""Generated inputs: the same everywhere, and what they claim to be."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import struct
import subprocess
import zlib
from collections import Counter
from pathlib import Path

import pytest

from harness.packages import need
from pagelab.benchmarks.inputs import corpus, image, scripts
from pagelab.benchmarks.inputs.make import make
from pagelab.benchmarks.inputs.text import make_text

KNOWN = json.loads((Path(__file__).parent / "inputs.json").read_text())


def inputs() -> dict[str, bytes]:
    pixels = image.make_pixels(3, 40, 30)
    return {
        "text": make_text(3, 20_000),
        "pixels": pixels,
        "sql": scripts.make_sql(3, 300),
        **{f"c {kind}": corpus.make_file(kind, 3).encode() for kind in corpus.KINDS},
    }


def test_the_same_seed_gives_the_same_bytes_on_every_machine() -> None:
    found = {name: hashlib.sha256(content).hexdigest() for name, content in inputs().items()}
    if found != KNOWN:
        (Path(__file__).parent / "inputs.json.new").write_text(json.dumps(found, indent=1) + "\n")
    assert found == KNOWN


@pytest.mark.parametrize("kind", corpus.KINDS)
def test_a_file_of_the_corpus_computes_the_same_at_every_level(kind: str, tmp_path: Path) -> None:
    source = tmp_path / f"{kind}.c"
    source.write_text(corpus.make_file(kind, 1), encoding="ascii")
    answers = {level: _answer(source, [level]) for level in ("-O0", "-O2")}
    assert len(set(answers.values())) == 1, answers
    assert re.fullmatch(r"\d+\n", answers["-O0"])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize("kind", corpus.KINDS)
def test_the_corpus_has_no_undefined_behaviour(kind: str, seed: int, tmp_path: Path) -> None:
    source = tmp_path / f"{kind}.c"
    source.write_text(corpus.make_file(kind, seed), encoding="ascii")
    checks = ["-O1", "-fsanitize=undefined,address", "-fno-sanitize-recover=all"]
    answers = {str(flags): _answer(source, flags) for flags in (checks, ["-O3"], ["-Os"])}
    assert len(set(answers.values())) == 1, answers


def _answer(source: Path, flags: list[str]) -> str:
    program = source.with_suffix("")
    subprocess.run(["gcc", "-w", *flags, source, "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True, timeout=60).stdout


def test_seeds_give_different_code_and_kinds_do() -> None:
    files = [corpus.make_file(kind, seed) for kind in corpus.KINDS for seed in (1, 2)]
    assert len(set(files)) == len(files)
    assert all(len(file.splitlines()) > 300 for file in files)


def test_text_is_as_compressible_as_english() -> None:
    content = make_text(1, 200_000)
    assert 200_000 <= len(content) < 202_000
    assert 2.5 < len(content) / len(zlib.compress(content, 6)) < 4.5
    ranks = [count for _, count in Counter(content.split()).most_common(200)]
    assert ranks[0] > 10 * ranks[100], "frequencies fall with the rank"


def test_pictures_are_what_their_formats_say() -> None:
    pixels = image.make_pixels(1, 64, 48)
    assert len(pixels) == 3 * 64 * 48
    assert image.ppm(pixels, 64, 48).startswith(b"P6\n64 48\n255\n")
    assert len(image.tiled(pixels, 64, 48, 3)) == 9 * len(pixels)
    rows = _png_rows(image.png(pixels, 64, 48))
    assert b"".join(row[1:] for row in rows) == pixels


def _png_rows(data: bytes) -> list[bytes]:
    """A reader of its own: checks every CRC, inflates, splits into rows."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    at, body, width = 8, b"", 0
    while at < len(data):
        length = struct.unpack(">I", data[at : at + 4])[0]
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        assert zlib.crc32(kind + content) == struct.unpack(">I", data[at + 8 + length : at + 12 + length])[0]
        width = struct.unpack(">I", content[:4])[0] if kind == b"IHDR" else width
        body += content if kind == b"IDAT" else b""
        at += 12 + length
    raw, stride = zlib.decompress(body), 3 * width + 1
    return [raw[start : start + stride] for start in range(0, len(raw), stride)]


def test_the_shop_runs_as_sql() -> None:
    with sqlite3.connect(":memory:") as database:
        database.executescript(scripts.make_sql(2, 2000).decode())
        (sold,) = database.execute("SELECT count(*) FROM sale").fetchone()
    assert 1500 < sold < 2000, "some were deleted, most were not"


@pytest.mark.parametrize("interpreter", ["lua5.4", "perl"])
def test_scripts_count_words_as_python_does(interpreter: str, tmp_path: Path) -> None:
    script, words = tmp_path / "script", tmp_path / "words.txt"
    script.write_text(scripts.LUA if interpreter == "lua5.4" else scripts.PERL)
    words.write_bytes(make_text(5, 50_000))
    done = subprocess.run([need(interpreter), script, words], check=True, capture_output=True, text=True)
    counts = Counter(re.findall(r"[a-z]+", words.read_text().lower()))
    most, times = min(counts.items(), key=lambda item: (-item[1], item[0]))
    found = done.stdout.split()
    assert found[:3] == [str(len(counts)), most, str(times)]
    assert len(found[3]) == max(map(len, counts))
    assert found[4] == "17984"


def test_half_an_input_is_never_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pagelab.benchmarks.inputs import make as maker

    def breaks(directory: Path) -> None:
        (directory / "half").write_text("x")
        raise RuntimeError("disk full")

    monkeypatch.setitem(maker.KINDS, "sql", breaks)
    with pytest.raises(RuntimeError):
        make("sql", tmp_path)
    assert list(tmp_path.iterdir()) == []
