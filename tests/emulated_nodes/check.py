"""What the runs of ``init`` must have said and recorded, on a machine with two memory nodes and on an old kernel."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.harness.emulated import parts


def record(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text[text.index('{"schema"') : text.rindex("}") + 1])
    return found


def check_nodes(found: dict[str, str], codes: dict[str, int]) -> None:
    names = ["coloring", "hopping", "random", "bound-0", "bound-1", "coloring-always"]
    for name in [*names, "demand-always", "demand-never"]:
        text = found[name]
        assert text.lstrip().startswith("ok\n"), f"{name}: {text[:600]}"
        assert codes[name] == 0, name
        frames = record(text)["frames"]
        for strategy in frames["strategies"]:
            asked, placed = strategy["requested_pages"], strategy["placed_pages"]
            assert asked == placed > 0, f"{name}: {placed} of {asked} pages are placed"
        values = frames["engine"]["values"]
        assert values["other_node_pages"] == 0, (name, values)
        assert values["pool_peak_bytes"] <= values.get("nodes", 1) * (64 << 20), (name, values)
        if name.startswith("demand"):
            continue
        on = [values.get(f"node_{node}_pages", 0) for node in range(2)]
        assert sum(on) >= sum(s["placed_pages"] for s in frames["strategies"]), (name, on)
        if name.startswith("bound"):
            # The image before the exec was not bound yet.
            bound = int(name[-1])
            assert on[1 - bound] < 50 < 1000 < on[bound], (name, on)
        else:
            assert values["nodes"] == 2, (name, values)
            assert min(on) > 1000, (name, on)


def check_refused(found: dict[str, str], codes: dict[str, int]) -> None:
    text = found["refused"]
    assert codes["refused"] == 3, text
    assert "cannot move pages by userfaultfd" in text, text
    assert "6.8" in text, text
    assert "\nok" not in text, "the program was started"


if __name__ == "__main__":
    console = Path(sys.argv[1]).read_text(errors="replace")
    try:
        found, codes = parts(console)
        assert "end" in found, "the machine did not come to the end"
        (check_refused if sys.argv[2:] == ["refused"] else check_nodes)(found, codes)
    except (AssertionError, KeyError, ValueError) as error:
        print(f"{sys.argv[1]}: {error!r}\n{console[-6000:]}")
        sys.exit(1)
    print(f"{sys.argv[1]}: as expected")
