"""``bench/minute.py``: answers are read from ``compare --json``, and counted."""

from __future__ import annotations

from bench import minute


def _answer(planted: float, percent: float, half: float, said: str) -> minute.Answer:
    ratio = {"value": percent, "low": percent - half, "high": percent + half}
    told: dict[str, object] = {
        "metric": "wall_s",
        "conditions": [{"in_pairs": {"pairs": 300, "ratio": ratio, "said": said}}],
    }
    return minute.read(told, "2026-01-01T12:34:56+00:00", planted, 61.0, 0.5)


def test_wide_false_and_missed_answers_are_counted() -> None:
    answers = [
        _answer(0.0, 0.1, 0.5, "same"),
        _answer(0.0, -0.7, 0.5, "lower"),
        _answer(0.03, 3.2, 0.5, "higher"),
        _answer(0.03, 1.0, 3.5, "cannot-tell"),
        _answer(0.03, -9.0, 0.5, "lower"),
    ]
    text = minute.document(answers)
    assert "half-width ≤ 3% in 4 of 5 (median 0.50%)" in text
    assert "of 3% more work, a change found in 1 of 3; of the same work, in 1 of 2" in text
    assert "holds the planted difference in 3 of 5" in text
    assert "| 12:34 | 0.5 | 3% | 61 s | 300 | wall_s | +3.20% (+2.70 … +3.70) | 0.50 | higher |" in text
