"""Values of non-determinism for the page's template."""

from __future__ import annotations

from typing import Any

from pagelab.analysis.model import Analysis
from pagelab.report.nondeterminism import tables
from pagelab.report.nondeterminism.figures import is_the_answer
from pagelab.report.tables import without_empty_columns


def for_page(analysis: Analysis) -> dict[str, Any]:
    """Tables, sentences and omissions, by the names in the template."""
    part = analysis.nondeterminism
    sentences = [] if part is None else [text for text in (part.speed, part.steadiness) if text]
    on_top = is_the_answer(analysis)
    return {
        "tables": {make.__name__: without_empty_columns(make(analysis)) for make in tables.MAKERS},
        "sentences": sentences,
        "on_top": on_top,
        "beside": on_top or analysis.over_set is not None,
        "is_repeated": part is not None and any(one.repeated for one in part.experiments),
        "is_compared": part is not None and bool(part.families),
        "misses_reason": "" if part is None else part.misses.reason.rstrip("."),
        "balance": tables.balance_sentences(analysis),
        "refusals": tables.refusals(analysis),
    }
