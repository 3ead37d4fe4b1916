"""What a place that is no study is instead, and the next command: a study's plan, or a directory of studies."""

from __future__ import annotations

import tomllib
from itertools import islice
from pathlib import Path

from pagelab.errors import quoted

_NAME = "study.db"
_SHOWN = 5


def instead(place: Path) -> str:
    """The end of a refusal of ``place`` as a study: ``it is a study's plan; its results: pagelab report DIR``."""
    if place.suffix == ".toml" and place.is_file():
        return _of_plan(place)
    if (place / "diagnose.json").is_file():
        return (
            "it is a diagnosis without its main executions; continue it with: "
            f"pagelab diagnose --resume {quoted(place)}"
        )
    found = list(islice(_studies(place), _SHOWN + 1))
    if found:
        more = ", …" if len(found) > _SHOWN else ""
        return f"studies in it: {', '.join(found[:_SHOWN])}{more}; name one of them"
    beside = [] if place.exists() else list(islice(_studies(Path()), _SHOWN + 1))
    if beside:
        more = ", …" if len(beside) > _SHOWN else ""
        return f"studies here: {', '.join(beside[:_SHOWN])}{more}; name one of them"
    return "start one with: pagelab study run SPEC"


def _of_plan(spec: Path) -> str:
    """Of a study.toml: the directory of its results, or the command that makes them."""
    try:
        name = tomllib.loads(spec.read_text(encoding="utf-8")).get("name")
    except (OSError, ValueError):
        name = None
    results = [place for place in (Path(f"{name}.study"), spec.with_name(f"{name}.study")) if (place / _NAME).is_file()]
    if results:
        return f"it is a study's plan; its results: pagelab report {quoted(results[0])}"
    return f"it is a study's plan; run it with: pagelab study run {quoted(spec)}"


def _studies(directory: Path) -> list[str]:
    """Directories of studies in ``directory``, or, where there is none, one level below."""
    for pattern in (f"*/{_NAME}", f"*/*/{_NAME}"):
        try:
            found = sorted(str(path.parent) for path in directory.glob(pattern))
        except OSError:
            return []
        if found:
            return found
    return []
