"""The text of ``pagelab trace``."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagelab.trace import Capture

_SHOWN_IMAGES = 20


def _size(number: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    raise AssertionError("unreachable")


def _page(header: dict[str, Any]) -> str:
    return _size(1 << header["page_bits"])


def _kinds(kinds: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in kinds.items() if count)


def _image(number: int, image: dict[str, Any]) -> str:
    threads = image.get("threads", 1)
    several = f", {threads} threads" if threads > 1 else ""
    ended = "" if image["ended"] == "exit" else f", ended by {image['ended']}"
    pid = f"{image['pid']} " if "pid" in image else ""
    command = shlex.join(image["command"]).replace("\n", "\\n")
    shown = command if len(command) <= 100 else f"{command[:97]}..."
    return f"  {number}: {pid}{shown}: {image['references']:,} references{several}{ended}"


def _images(images: list[dict[str, Any]]) -> Iterator[str]:
    for number, image in enumerate(images[:_SHOWN_IMAGES]):
        yield _image(number, image)
    if len(images) > _SHOWN_IMAGES:
        yield f"  ... and {len(images) - _SHOWN_IMAGES} more"


def captured(found: Capture) -> Iterator[str]:
    """The result of a capture, and its gaps."""
    runs = "" if found.kinds is not None else f" in {found.records:,} page runs"
    kinds = f" ({_kinds(found.kinds)})" if found.kinds else ""
    wall = f" in {found.wall_s:.1f} s" if found.wall_s else ""
    yield f"{found.path}: {found.references:,} references{runs}{kinds}{wall}, {_size(found.path.stat().st_size)}"
    if len(found.images) > 1 or any(image["ended"] == "killed" for image in found.images):
        yield from _images(found.images)
    for image in found.images:
        if image["ended"] == "killed":
            yield f"warning: process {image.get('pid', '')} was killed: its last references are missing"
    for note in found.notes:
        yield f"note: {note}"
    if found.cut_off:
        yield f"warning: {found.cut_off} processes lived on after the program; their traces end there"


def info(path: Path, found: dict[str, Any]) -> Iterator[str]:
    """The contents of a trace."""
    header = found["header"]
    runs = header["content"] == "runs"
    what = f"page runs of {_page(header)} pages" if runs else "full references"
    yield f"{path}: {what}, {_size(found['bytes'])}, {found['chunks']} chunks"
    in_runs = f" in {found['records']:,} runs" if runs else ""
    bits = 8 * found["bytes"] / found["records"] if found["records"] else 0
    yield f"  references: {found['references']:,}{in_runs}; {bits:.1f} bits a record"
    if header.get("sampling"):
        yield f"  a sample: {header['sampling']['what']}; refused where every reference is needed"
    if header.get("reduction"):
        reduction = header["reduction"]
        memory = _size(reduction["memory_pages"] << header["page_bits"])
        colours = ", ".join(str(count) for count in reduction["colours"])
        yield f"  reduced: exact for LRU memories from {memory} up, in {colours} colours"
    if not found["complete"]:
        yield "  torn, or other bytes follow its end; these figures are of its complete chunks"
    yield from _thorough(found["thorough"])
    yield from _origin(found)


def _thorough(thorough: dict[str, Any] | None) -> Iterator[str]:
    if thorough is None:
        return
    from pagelab.trace import KINDS

    if thorough["kinds"]:
        yield f"  kinds: {_kinds(dict(zip(KINDS, thorough['kinds'], strict=True)))}"
    threads = f", {thorough['threads']} threads" if thorough["threads"] else ""
    yield f"  pages touched: {thorough['pages']:,}; {thorough['address_spaces']} address spaces{threads}"
    if thorough["damage"] is None:
        yield "  every chunk is whole"


def _origin(found: dict[str, Any]) -> Iterator[str]:
    ending = found["ending"] or {}
    if ending.get("images"):
        yield f"  address spaces (process images), captured in {ending['wall_s']:.1f} s:"
        yield from _images(ending["images"])
    elif found["header"].get("address_spaces"):
        yield "  address spaces:"
        yield from (f"  {number}: {name}" for number, name in enumerate(found["header"]["address_spaces"]))
    provenance = found["header"].get("provenance") or {}
    parameters = provenance.get("parameters")
    if parameters:
        said = ", ".join(
            f"{key} {_plain(value)}"
            for key, value in parameters.items()
            if value not in (None, [], False) and key != "policy_toml"
        )
        yield f"  made by: {said}"
    machine = provenance.get("machine") or {}
    if machine:
        version = (machine.get("pagelab") or {}).get("version")
        yield f"  on: {machine.get('host')}, {machine.get('time')}, pagelab {version}"


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(one) for one in value)
    if isinstance(value, dict):
        return " ".join(f"{key}={one}" for key, one in value.items())
    return str(value)


def written(target: Path, answer: dict[str, Any]) -> str:
    """One line on a new trace."""
    parts = [f"{target}: {answer['records']:,} records"]
    if answer.get("references") is not None and answer["references"] != answer["records"]:
        parts.append(f"{answer['references']:,} references")
    if answer.get("read_runs"):
        kept = answer["records"] / answer["read_runs"]
        parts.append(f"{kept:.2%} of {answer['read_runs']:,} runs are left")
    if answer.get("lost_bytes") is not None:
        parts.append(f"{answer['lost_bytes']:,} bytes of the old file belong to no whole chunk")
    parts.append(_size(answer["bytes"]))
    return ", ".join(parts)
