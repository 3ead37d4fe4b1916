"""Makes the study.toml of each phase: an ordinary study for ``pagelab study`` and ``pagelab report``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagelab.diagnose.model import Pin, Settings, Source
from pagelab.study.substitute import literal
from pagelab.study.toml_text import dumps

DEFAULT = "default"
COPIES = 3
"""Copies of the default in each block: sources are compared with them, and comparing the copies with each other is the
A/A check of the report."""
WORKLOAD = "program"


def default_names(copies: int) -> list[str]:
    """Names of the default's copies: ``default``, ``default-2`` …"""
    return [DEFAULT, *(f"{DEFAULT}-{number}" for number in range(2, copies + 1))]


def conditions(sources: Sequence[Source]) -> list[Pin]:
    """Every pin and every control of the sources that are not left out, each once: sources may share a control."""
    active = [source for source in sources if source.left_out is None]
    found = [pin for source in active for pin in source.pins]
    found += [control for source in active for control in source.controls]
    return list({pin.name: pin for pin in found}.values())


def study_toml(
    settings: Settings, name: str, pins: Sequence[Pin], *, executions: int, warmups: int, copies: int, question: str
) -> str:
    """The text of a study of ``copies`` of the default and of every pin."""
    workload: dict[str, Any] = {
        "name": WORKLOAD,
        "command": [literal(word) for word in settings.argv],
        "cwd": literal(settings.cwd),
    }
    if settings.regex is not None:
        workload["measure"] = {"regex": settings.regex}
    if settings.timeout_s is not None:
        workload["timeout"] = settings.timeout_s
    policies: list[dict[str, Any]] = [{"name": each} for each in default_names(copies)]
    policies += [{"name": pin.name, **pin.keys} for pin in pins]
    return dumps(
        {
            "name": name,
            "question": question,
            "executions": executions,
            "warmups": warmups,
            "seed": settings.seed,
            "baseline": DEFAULT,
            "metric": settings.metric,
            "level": settings.level,
            # The spread of times is measured, and the host is one of its sources.
            "host_backed": 0,
            "workload": [workload],
            "policy": policies,
        }
    )
