"""Warnings about cache colours on this machine, for every run of a frame policy."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

from ...record import RunWarning, WarningKind
from .model import Verdict

_OF_THE_MACHINE = {"scope": "machine"}
"""Marks a warning that every run on the machine has; see ``record.about_the_machine``."""
PROBE_COMMAND = "sudo pagelab doctor --probe-colours"


def governs_frames(policy_toml: str) -> bool:
    """Whether a policy (canonical TOML) decides where pages lie, for any memory."""
    document = tomllib.loads(policy_toml)
    return any(part.get("frames", "kernel") != "kernel" for part in (document, *document.get("rule", ())))


def warnings(policy_toml: str, machine: Mapping[str, Any]) -> list[RunWarning]:
    """The warnings; none for policies without frames, or on machines where colours are effective."""
    if not governs_frames(policy_toml):
        return []
    found = machine.get("colour_verdict")
    if found is None:
        message = (
            "whether frame numbers reach this machine's caches is not known, so a difference or its absence says "
            f"little about colours; run: {PROBE_COMMAND}"
        )
        return [RunWarning(kind=WarningKind.COLOURS_NOT_PROBED, message=message, data=_OF_THE_MACHINE)]
    verdict = found["verdict"]
    if verdict == Verdict.EFFECTIVE:
        return []
    return [
        RunWarning(
            kind=WarningKind.COLOURS_WITHOUT_EFFECT,
            severity="info",
            message=sentence(found),
            data=_OF_THE_MACHINE | {"verdict": verdict},
        )
    ]


def sentence(found: Mapping[str, Any]) -> str:
    """The ``colour_verdict`` of a machine description in words, for summaries and reports."""
    day = found["measured_at"][:10]
    masks = [f"L{cache['level']}: masks = {_listed(cache['masks'])}" for cache in found["caches"] if cache["masks"]]
    verdict_words = {
        Verdict.EFFECTIVE: "frame numbers reach this machine's caches: pages of one colour slow each other down",
        Verdict.SCATTERED: (
            "this machine's caches do not follow frame numbers (a guest whose host scatters its frames), so no effect "
            "of colours can be expected"
        ),
        Verdict.HASHED: (
            "this machine's caches hash the frame number, so colours by its low bits have no effect; give masks"
            + (f" ({'; '.join(masks)})" if masks else "")
        ),
        Verdict.INCONCLUSIVE: "whether frame numbers reach this machine's caches could not be told",
    }
    return f"{verdict_words[Verdict(found['verdict'])]} (measured {day})"


def _listed(masks: list[str]) -> str:
    return "[" + ", ".join(f'"{mask}"' for mask in masks) + "]"
