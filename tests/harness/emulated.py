"""Output of an emulated machine: parts that begin with ``=== NAME``, each with the exit code of its command."""

from __future__ import annotations

import re


def parts(log: str) -> tuple[dict[str, str], dict[str, int]]:
    """Name → what was printed; name → exit code. A code stands in a line ``=== exit NAME CODE``."""
    found, codes = {}, {}
    for part in log.replace("\r", "").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        ended = re.fullmatch(r"exit (\S+) (\d+)", name.strip())
        if ended:
            assert ended[1] not in codes, f"two parts are named {ended[1]}"
            codes[ended[1]] = int(ended[2])
        else:
            found[name.strip()] = text
    return found, codes
