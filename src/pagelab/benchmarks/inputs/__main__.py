"""Makes the inputs of bundled benchmarks: ``python -m pagelab.benchmarks.inputs DIR KIND…``; existing ones are kept."""

from __future__ import annotations

import sys
from pathlib import Path

from .make import KINDS, make


def main(words: list[str]) -> int:
    """Makes the inputs. Exit code 2 for bad words, 4 if an input cannot be made."""
    if len(words) < 2 or set(words[1:]) - set(KINDS):
        sys.stderr.write(f"usage: python -m pagelab.benchmarks.inputs DIR KIND…   (kinds: {', '.join(KINDS)})\n")
        return 2
    try:
        for kind in words[1:]:
            make(kind, Path(words[0]))
    except (OSError, RuntimeError) as error:
        sys.stderr.write(f"cannot make {kind}: {error}\n")
        return 4
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
