"""The file's bytes are those of docs/trace: read here by another implementation, made from the page alone."""

from __future__ import annotations

import json
import struct
import subprocess
import zlib
from pathlib import Path

import numpy as np
import pytest

from pagelab import trace

SIZES = [
    *range(33),
    *map(
        int,
        [
            "36",
            "40",
            "44",
            "48",
            "52",
            "56",
            "60",
            "64",
            "72",
            "80",
            "94",
            "96",
            "108",
            "112",
            "128",
            "160",
            "192",
            "224",
            "256",
            "320",
        ],
    ),
]
SIZES += [384, 416, 448, 512, 576, 832, 1024, 1088, 2048, 2696, 4096]


class File:
    """A trace file, read strictly by the page."""

    def __init__(self, path: Path) -> None:
        content = path.read_bytes()
        offset = 0
        for expected in (b"PAGELABT", b"\xf5PLcopy\n"):
            magic, version, zero, length, json_sum, own = struct.unpack_from("<8sHHIII", content, offset)
            assert (magic, version, zero) == (expected, 2, 0)
            assert own == zlib.crc32(content[offset : offset + 20])
            text = content[offset + 24 : offset + 24 + length]
            assert json_sum == zlib.crc32(text)
            self.header = json.loads(text)
            offset += 24 + length
        self.begin = offset
        self.chunks, seen = [], 0
        offsets = []
        while content[offset : offset + 8] == b"\xf5PLchnk\n":
            offsets.append(offset)
            fields = struct.unpack_from("<IIQQIIIIII", content, offset + 8)
            stored, raw, first, references, records, segments, kind, payload_sum, zero, own = fields
            assert own == zlib.crc32(content[offset : offset + 52])
            assert (first, zero) == (seen, 0)
            payload = content[offset + 56 : offset + 56 + stored]
            assert payload_sum == zlib.crc32(payload)
            plain = subprocess.run(["zstd", "-dc"], input=payload, capture_output=True, check=True).stdout
            assert len(plain) == raw
            self.chunks.append((kind, references, records, segments, plain))
            seen += records
            offset += 56 + stored
        self.index(content, offset, offsets)

    def index(self, content: bytes, offset: int, offsets: list[int]) -> None:
        magic, entries, length, payload_sum, zero, own = struct.unpack_from("<8sQIIII", content, offset)
        assert (magic, entries, zero) == (b"\xf5PLindx\n", len(offsets), 0)
        assert own == zlib.crc32(content[offset : offset + 28])
        begin, end = offset + 32, offset + 32 + entries * 40 + length
        assert payload_sum == zlib.crc32(content[begin:end])
        rows = list(struct.iter_unpack("<QQQIIQ", content[begin : begin + entries * 40]))
        assert [row[0] for row in rows] == offsets
        assert [row[3] for row in rows] == [chunk[2] for chunk in self.chunks]
        assert [row[2] for row in rows] == [chunk[1] for chunk in self.chunks]
        self.ending = json.loads(content[begin + entries * 40 : end])
        magic, where, zero, own = struct.unpack_from("<8sQII", content, end)
        assert (magic, where, zero) == (b"\xf5PLtail\n", offset, 0)
        assert own == zlib.crc32(content[end : end + 20])
        assert end + 24 == len(content)


def number(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def difference(data: bytes, at: int) -> tuple[int, int]:
    code, at = number(data, at)
    return (code >> 1) ^ -(code & 1), at


def test_references(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    count = 200_000
    columns = {
        "address": random.integers(0, 1 << 56, count, dtype=np.uint64),
        "kind": random.integers(0, 4, count, dtype=np.uint8),
        "size": random.choice(SIZES, count).astype(np.uint32),
        "thread": np.arange(count, dtype=np.uint32) // 1000 % 70_000,
        "asid": (np.arange(count) // 700 % 4096).astype(np.uint16),
    }
    trace.write(tmp_path / "t", [columns])
    file = File(tmp_path / "t")
    assert file.header["content"] == "references"
    assert [chunk[2] for chunk in file.chunks] == [131_072, count - 131_072]
    rows = []
    for kind, references, records, segments, plain in file.chunks:
        assert (kind, references) == (1, records)
        at, owners = 0, []
        for _ in range(segments):
            asid, at = number(plain, at)
            thread, at = number(plain, at)
            length, at = number(plain, at)
            owners += [(asid, thread)] * length
        metas, at = plain[at : at + records], at + records
        last = [0, 0, 0, 0]
        for meta, owner in zip(metas, owners, strict=True):
            step, at = difference(plain, at)
            last[meta & 3] += step
            rows.append((last[meta & 3], meta & 3, SIZES[meta >> 2], owner[1], owner[0]))
        assert at == len(plain)
    assert rows == list(zip(*(column.tolist() for column in columns.values()), strict=True))


def test_runs(tmp_path: Path) -> None:
    columns = {
        "page": np.array([5, 6, (1 << 35) - 1, 0, 5], np.uint64),
        "count": np.array([1, 300, 1 << 40, 2, 1], np.uint64),
        "asid": np.array([0, 0, 4095, 1, 0], np.uint16),
    }
    trace.write(tmp_path / "t", [columns], page_bytes="2M")
    file = File(tmp_path / "t")
    assert (file.header["content"], file.header["page_bits"]) == ("runs", 21)
    ((kind, references, records, segments, plain),) = file.chunks
    assert (kind, references, records, segments) == (2, int(columns["count"].sum()), 5, 0)
    end = 4 + struct.unpack_from("<I", plain)[0]
    at, last, pages = 4, 0, []
    while at < end:
        step, at = difference(plain, at)
        last = (last + step) % (1 << 64)
        pages.append(last)
    counts = []
    while at < len(plain):
        count, at = number(plain, at)
        counts.append(count)
    assert counts == columns["count"].tolist()
    assert pages == [
        page | asid << 52 for page, asid in zip(columns["page"].tolist(), columns["asid"].tolist(), strict=True)
    ]


@pytest.mark.parametrize("size", [33, 65, 513, 5000])
def test_other_sizes_are_rounded_up(size: int, tmp_path: Path) -> None:
    trace.write(tmp_path / "t", [{"address": [1], "size": [size]}])
    (batch,) = trace.Trace(tmp_path / "t").references()
    assert batch.size.tolist() == [min((known for known in SIZES if known >= size), default=4096)]


def as_version_1(content: bytes, begin: int) -> bytes:
    """The same trace as pagelab wrote it when headers had no copy: all that follows lies as much further ahead."""
    header = bytearray(content[: begin // 2])
    header[8:10] = struct.pack("<H", 1)
    header[20:24] = struct.pack("<I", zlib.crc32(header[:20]))
    (index,) = struct.unpack_from("<Q", content, len(content) - 16)
    magic, entries, length, _, zero, _ = struct.unpack_from("<8sQIIII", content, index)
    rows = b"".join(
        struct.pack("<QQQIIQ", row[0] - begin // 2, *row[1:])
        for row in struct.iter_unpack("<QQQIIQ", content[index + 32 : index + 32 + entries * 40])
    )
    payload = rows + content[index + 32 + len(rows) : index + 32 + len(rows) + length]
    head = struct.pack("<8sQIII", magic, entries, length, zlib.crc32(payload), zero)
    tail = struct.pack("<8sQI", b"\xf5PLtail\n", index - begin // 2, 0)
    sealed = (part + struct.pack("<I", zlib.crc32(part)) for part in (head, tail))
    return bytes(header) + content[begin:index] + next(sealed) + payload + next(sealed)


def test_traces_of_version_1_are_read(tmp_path: Path) -> None:
    addresses = np.arange(300_000, dtype=np.uint64) * np.uint64(64)
    trace.write(tmp_path / "now", [addresses])
    file = File(tmp_path / "now")
    (tmp_path / "then").write_bytes(as_version_1((tmp_path / "now").read_bytes(), file.begin))
    back = np.concatenate([batch.address for batch in trace.Trace(tmp_path / "then").references()])
    assert np.array_equal(back, addresses)
    parts = [batch.address for part in range(3) for batch in trace.Trace(tmp_path / "then").references(shard=(part, 3))]
    assert np.array_equal(np.concatenate(parts), addresses)
    written = trace.convert(tmp_path / "then", tmp_path / "again", recover=True)
    assert (written["references"], written["lost_bytes"]) == (300_000, 0)


@pytest.mark.parametrize("place", [0, 8, 21, 30])
def test_a_wrong_bit_in_the_header_costs_nothing(tmp_path: Path, place: int) -> None:
    addresses = np.arange(300_000, dtype=np.uint64) * np.uint64(64)
    trace.write(tmp_path / "t", [addresses])
    content = bytearray((tmp_path / "t").read_bytes())
    content[place] ^= 4
    (tmp_path / "t").write_bytes(content)
    with pytest.raises(trace.TraceError, match="--recover"):
        list(trace.Trace(tmp_path / "t").references())
    trace.convert(tmp_path / "t", tmp_path / "whole", recover=True)
    back = np.concatenate([batch.address for batch in trace.Trace(tmp_path / "whole").references()])
    assert np.array_equal(back, addresses)
