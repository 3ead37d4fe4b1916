"""Runs all probes in sequence; a failing probe does not affect the others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from . import noise, probes_host, probes_kernel, probes_pages, probes_rights
from .journal import Entry, Journal, JournalError, boot_id
from .probe import Context, Finding, Probe, Question
from .provenance import provenance

SCHEMA = "pagelab.doctor/1"
GROUPS = {
    "pages": "Page sizes, pools, caches",
    "kernel": "Kernel features, each tried",
    "rights": "Rights and counters",
    "host": "Host and limits",
    "noise": "Noise, measured",
    "pagelab": "pagelab itself",
}


def _parts(_context: Context) -> Finding:
    from pagelab import paths

    missing = []
    found = {}
    for name, find in (("library", paths.library), ("launcher", paths.launcher), ("workload", paths.workload)):
        try:
            path = find()
            found[name] = str(path)
            if not path.is_file():
                missing.append(f"{path} does not exist")
        except paths.MissingPartError as error:
            missing.append(str(error))
    if missing:
        return Finding("absent", "; ".join(missing), found, "pip install . (from a checkout: make dev)")
    return Finding("ok", "library, launcher and workloads found", found)


def _journal(context: Context) -> Finding:
    try:
        entries = changed()
    except JournalError as error:
        return Finding("unknown", str(error))
    if not entries:
        return Finding("ok", "nothing changed by pagelab", [])
    changes = ", ".join(f"{entry.path} {entry.old} → {entry.new}" for entry in entries[:3])
    more = f" and {len(entries) - 3} more" if len(entries) > 3 else ""
    value = [asdict(entry) for entry in entries]
    if all(entry.owner_lives for entry in entries):
        return Finding("ok", f"changed for a run in progress: {changes}{more}", value)
    return Finding(
        "degraded", f"changed, not put back: {changes}{more}", value, f"sudo {context.pagelab} doctor --restore"
    )


def changed() -> list[Entry]:
    """Settings that pagelab changed in this boot and has not restored. Raises :class:`JournalError`."""
    return Journal().read().active(boot_id())


QUESTIONS: tuple[Question, ...] = (
    *probes_pages.QUESTIONS,
    *probes_kernel.QUESTIONS,
    *probes_rights.QUESTIONS,
    *probes_host.QUESTIONS,
    *noise.QUESTIONS,
    Question("parts", "pagelab", "the native parts that start and govern programs", _parts),
    Question("settings", "pagelab", "settings that pagelab changed on this machine", _journal),
)


def examine(
    context: Context, *, with_noise: bool = True, asking: Callable[[str], None] = lambda _name: None
) -> list[Probe]:
    """Runs every probe (about a second, half of it for noise); ``asking`` gets each probe's name before it runs."""
    probes: list[Probe] = []
    for question in QUESTIONS:
        if question.group == "noise" and not with_noise:
            continue
        asking(question.name)
        probes += question.answer(context)
    return probes


def report(context: Context, probes: list[Probe]) -> dict[str, Any]:
    """The document of ``doctor --json``."""
    return {
        "schema": SCHEMA,
        "machine": context.machine,
        "provenance": provenance(context.tree),
        "probes": [asdict(probe) for probe in probes],
    }
