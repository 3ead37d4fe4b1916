"""Makes inputs as files. Each kind is made in a temporary directory, written to the disk, then renamed: no input is
incomplete, also after a power cut."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from ...disk import sync_directory, sync_tree
from . import corpus, image, scripts, text

SEED = 1
TEXT_BYTES = 4 << 20
_SIDE = (640, 480)
_TILES = 4
_ROWS = 20_000


def _text(directory: Path) -> None:
    content = text.make_text(SEED, TEXT_BYTES)
    (directory / "text.txt").write_bytes(content)
    (directory / "text.gz").write_bytes(gzip.compress(content, 6, mtime=0))
    (directory / "text.bz2").write_bytes(bz2.compress(content))
    (directory / "text.xz").write_bytes(lzma.compress(content, preset=3))
    if shutil.which("zstd"):
        _run(["zstd", "-q", "-f", str(directory / "text.txt"), "-o", str(directory / "text.zst")])


def _image(directory: Path) -> None:
    pixels = image.make_pixels(SEED, *_SIDE)
    large = image.tiled(pixels, *_SIDE, _TILES)
    (directory / "image.ppm").write_bytes(image.ppm(large, _TILES * _SIDE[0], _TILES * _SIDE[1]))
    (directory / "image.png").write_bytes(image.png(pixels, *_SIDE))
    if shutil.which("cjpeg"):
        _run(["cjpeg", "-outfile", str(directory / "image.jpg"), str(directory / "image.ppm")])


def _sql(directory: Path) -> None:
    (directory / "shop.sql").write_bytes(scripts.make_sql(SEED, _ROWS))


def _scripts(directory: Path) -> None:
    (directory / "work.lua").write_text(scripts.LUA, encoding="ascii")
    (directory / "work.pl").write_text(scripts.PERL, encoding="ascii")
    (directory / "words.txt").write_bytes(text.make_text(SEED + 1, 1 << 20))


def _c(directory: Path) -> None:
    for kind in corpus.KINDS:
        (directory / f"{kind}.c").write_text(corpus.make_file(kind, SEED), encoding="ascii")


def _java(directory: Path) -> None:
    """Compiles the Java programs once, so that no execution includes the compiler; without a compiler nothing runs."""
    if not shutil.which("javac"):
        return
    folder = files("pagelab.benchmarks").joinpath("managed")
    for source in ("Measure.java", "Fft.java", "Aes.java", "Ping.java"):
        (directory / source).write_bytes(folder.joinpath(source).read_bytes())
    _run(["javac", "-d", str(directory), *(str(path) for path in sorted(directory.glob("*.java")))])


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} ended with exit code {done.returncode}: {done.stderr.strip()}")


def _scratch(directory: Path) -> None:
    """Makes a directory that every user's programs can write to."""
    directory.chmod(0o1777)


KINDS: dict[str, Callable[[Path], None]] = {
    "text": _text,
    "image": _image,
    "sql": _sql,
    "scripts": _scripts,
    "c": _c,
    "java": _java,
    "scratch": _scratch,
}
"""Kind of input → what fills its directory."""


def make(kind: str, inputs: Path) -> Path:
    """Returns the directory ``inputs/kind``, which is made if missing."""
    directory = inputs / kind
    if not directory.is_dir():
        inputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{kind}-", dir=inputs) as building:
            whole = Path(building) / kind
            whole.mkdir()
            KINDS[kind](whole)
            sync_tree(whole)
            whole.rename(directory)
        sync_directory(inputs)
    return directory
