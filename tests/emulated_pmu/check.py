"""What the runs of ``init`` must have counted on QEMU's PMU, where a nanosecond is one cycle and one instruction."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def parts(log: str) -> dict[str, Any]:
    """Name → the JSON that follows it on the console."""
    found = {}
    for part in log.replace("\r", "").split("=== ")[1:]:
        name, _, text = part.partition("\n")
        if "{" in text:
            found[name.strip()] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return found


def counts(record: dict[str, Any], status: str = "ok") -> dict[str, int]:
    return {c["name"]: c["count"] for c in record["counters"] if c["status"] == status}


def close(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * max(one, other)


def check(found: dict[str, Any]) -> None:
    hardware = found["counters"]["hardware"]
    assert hardware == {"advertised": 6, "usable": 6, "problem": None}, hardware

    alone = counts(found["alone"])
    enabled = next(c["enabled_ns"] for c in found["alone"]["counters"] if c["name"] == "cycles")
    assert alone["cycles"] == alone["instructions"], "one group: both count the very same time"
    assert close(alone["cycles"], enabled, 0.005), (alone, enabled)
    assert alone["faults.minor"] > 10

    tree = found["tree"]
    names = [Path(process["executable"]).name for process in tree["processes"]]
    assert names == ["sh", "true", "true", "true"], names

    shared = counts(found["shared"], "multiplexed")
    assert len(shared) == 8, "eight events on six counters take turns"
    for counter in found["shared"]["counters"]:
        assert 0.3 < counter["running_ns"] / counter["enabled_ns"] < 0.7, counter
    assert shared["cycles"] == shared["r11"] == shared["r08"], "one group"
    assert close(shared["r08:u"] + shared["r08:k"], shared["instructions"], 0.01), shared
    assert close(shared["cycles"], found["shared"]["counters"][0]["enabled_ns"], 0.01), shared

    absent = {c["name"]: (c["status"], c["count"]) for c in found["absent"]["counters"]}
    assert absent["cycles"][0] == "ok", "an event that is not there does not break the others' group"
    assert absent["branches"] == ("unsupported", None)
    assert absent["tlb.walks"][0] in ("unsupported", "implausible"), "QEMU takes the code and counts nothing"

    assert counts(found["handed-over"]).keys() == {"cycles", "faults.minor", "faults.major"}
    denied = found["denied"]
    assert {c["status"] for c in denied["counters"]} == {"denied"}
    (warning,) = [w for w in denied["warnings"] if w["kind"] == "counter-unavailable"]
    assert warning["severity"] == "warning"
    assert "perf_event_paranoid is 3" in warning["message"]


if __name__ == "__main__":
    console = Path(sys.argv[1]).read_text(errors="replace")
    try:
        check(parts(console))
    except (AssertionError, KeyError, ValueError) as error:
        print(f"{sys.argv[1]}: {error!r}\n{console[-6000:]}")
        sys.exit(1)
    print(f"{sys.argv[1]}: as expected")
