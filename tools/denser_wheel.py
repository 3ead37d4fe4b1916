"""Compresses wheels anew, with Zopfli: ``python -m tools.denser_wheel dist/*.whl``. It takes a minute or two, and what
pip reads stays the same."""

from __future__ import annotations

import argparse
import zipfile
from pathlib import Path

import zopfli


def compress(wheel: Path) -> None:
    """Replaces ``wheel`` by one with the same files. Raises `zipfile.BadZipFile` if one of them is damaged."""
    denser = wheel.with_name(f".{wheel.name}")
    with zipfile.ZipFile(wheel) as old, zopfli.ZipFile(denser, "w", encoding="utf-8", block_splitting_max=0) as new:
        for one in old.infolist():
            new.writestr(one, old.read(one), zipfile.ZIP_DEFLATED)
    denser.replace(wheel)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", nargs="+", type=Path)
    for wheel in parser.parse_args().wheel:
        before = wheel.stat().st_size
        compress(wheel)
        print(f"{wheel}: {before / 1e6:.2f} MB before, {wheel.stat().st_size / 1e6:.2f} MB now")


if __name__ == "__main__":
    main()
