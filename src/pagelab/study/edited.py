"""Detects changes of the file from which a study was begun: they do not change the study, and are reported."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..errors import quoted
from .errors import SpecError, StudyError
from .plan import Plan
from .quick import QUICK, quick_text
from .resuming import resume_command

_SHOWN = 3
_LONGEST = 40


def refuse_edited(
    directory: Path,
    meta: dict[str, str],
    executions: int | None = None,
    minutes: float | None = None,
    *,
    plan: Plan,
) -> None:
    """Raises StudyError where the file differs in meaning from the one with which the study in ``directory`` began.

    ``meta`` is the store's. An edit is accepted where the user asks for the number of ``executions`` that the file now
    has, where the user asks for more ``minutes`` and only these were edited, or where the ``plan`` has that many
    already.
    """
    source = Path(meta.get("source", ""))
    found = differences(source, meta)
    changed = list(found)
    if not found or (changed == ["minutes"] and minutes is not None):
        return
    old, new = found.get("executions", ("", ""))
    if changed == ["executions"] and new in (str(executions), str(plan.executions)):
        return
    advice = (
        f"as it began: {resume_command(quoted(directory), meta, plan, ' --as-begun')}; "
        f"as it is now: pagelab study run {quoted(source)} --into ANOTHER"
    )
    most = max(plan.executions, int(old) if old.isdigit() else 0)
    if changed == ["executions"] and new.isdigit() and int(new) > most:
        advice = f"for {new} of each: {resume_command(quoted(directory), meta, plan, f' --executions {new}')}; {advice}"
    if changed == ["minutes"]:
        advice = f"for more time: {resume_command(quoted(directory), meta, plan, ' --minutes N')}; {advice}"
    raise StudyError(
        f"{source} was edited since the study began ({told(found)}), and a study keeps its original file; {advice}"
    )


def told(found: dict[str, tuple[str, str]]) -> str:
    """The differences as text: ``executions: 8 → 12; level: not there → 0.99``."""
    shown = [f"{key}: {old} → {new}" for key, (old, new) in found.items()]
    return "; ".join([*shown[:_SHOWN], *([f"and {len(shown) - _SHOWN} more"] if len(shown) > _SHOWN else [])])


def differences(source: Path, meta: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Key -> old and new value, for every key that differs; empty where the file is gone or has the same meaning."""
    spec = meta.get("spec", "")
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    try:
        if spec.startswith(QUICK):
            text = quick_text(text, source)
        return between(spec, text)
    except (tomllib.TOMLDecodeError, SpecError) as error:
        return {"all of it": ("a study", str(error))}


def between(spec: str, text: str) -> dict[str, tuple[str, str]]:
    """Key -> its values in two texts of a study.toml, for every key that differs."""
    return dict(_differences(tomllib.loads(spec), tomllib.loads(text), ""))


_ABSENT = object()


def _differences(before: Any, now: Any, where: str) -> Iterator[tuple[str, tuple[str, str]]]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in [*before, *(key for key in now if key not in before)]:
            inner = f"{where}.{key}" if where else key
            yield from _differences(before.get(key, _ABSENT), now.get(key, _ABSENT), inner)
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now) and _tables(before):
        for old, new in zip(before, now, strict=True):
            name = old.get("name", "")
            yield from _differences(old, new, f'{where}."{name}"' if name else where)
    elif before != now or type(before) is not type(now):
        yield where, (_shown(before), _shown(now))


def _tables(values: list[Any]) -> bool:
    return bool(values) and all(isinstance(value, dict) for value in values)


def _shown(value: Any) -> str:
    if value is _ABSENT:
        return "not there"
    if isinstance(value, list) and _tables(value):
        return ", ".join(str(one.get("name", "…")) for one in value)[:_LONGEST]
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
