"""Makes a picture with smooth areas, edges and grain, as PPM and as a PNG that an optimiser can improve."""

from __future__ import annotations

import struct
import zlib

from . import Draw


def make_pixels(seed: int, width: int, height: int) -> bytes:
    """RGB bytes, row by row: gradients, discs and boxes over them, and a little noise."""
    draw = Draw(seed, "image")
    slopes = [(draw.between(-40, 40), draw.between(-40, 40), draw.below(256)) for _ in range(3)]
    rows = [
        bytearray(
            byte
            for x in range(width)
            for byte in [max(0, min(255, base + (sx * x + sy * y) // 100)) for sx, sy, base in slopes]
        )
        for y in range(height)
    ]
    for _ in range(24):
        _paint(draw, rows, width, height)
    for row in rows:
        grain = draw.bytes(3 * width)
        row[:] = bytes(max(0, min(255, value + (noise & 7) - 3)) for value, noise in zip(row, grain, strict=True))
    return b"".join(rows)


def _paint(draw: Draw, rows: list[bytearray], width: int, height: int) -> None:
    """Paints one disc or box of one colour."""
    colour = bytes(draw.below(256) for _ in range(3))
    radius = draw.between(4, min(width, height) // 5)
    x0, y0, disc = draw.below(width), draw.below(height), draw.chance(50)
    for y in range(max(0, y0 - radius), min(height, y0 + radius)):
        reach = int((radius**2 - (y - y0) ** 2) ** 0.5) if disc else radius
        left, right = max(0, x0 - reach), min(width, x0 + reach)
        rows[y][3 * left : 3 * right] = colour * max(0, right - left)


def tiled(pixels: bytes, width: int, height: int, times: int) -> bytes:
    """The picture repeated ``times`` across and ``times`` down: much work for a program, made in little time."""
    stride = 3 * width
    return b"".join(pixels[row : row + stride] * times for row in range(0, stride * height, stride)) * times


def ppm(pixels: bytes, width: int, height: int) -> bytes:
    """The pixels as a binary portable pixmap (PPM)."""
    return b"P6\n%d %d\n255\n" % (width, height) + pixels


def png(pixels: bytes, width: int, height: int) -> bytes:
    """The pixels as a PNG, unfiltered and hardly compressed, in one chunk, so that optipng has work."""
    stride = 3 * width
    raw = b"".join(b"\0" + pixels[row : row + stride] for row in range(0, stride * height, stride))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(raw, 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
