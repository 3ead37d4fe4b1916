"""Writes the verdict of a study in one sentence, by the rule of `answer`, as in ``pagelab try``."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import inf, log1p

from pagelab.analysis import wording
from pagelab.analysis.answer import NEGLIGIBLE, Answer, Evidence, aside, facts, judged, left_by_holm, sentence, words
from pagelab.analysis.commands import COMMAND
from pagelab.analysis.model import Analysis, Contrast, Design, Metric
from pagelab.analysis.policy_summary import policy_summary
from pagelab.terminal import Shown

_NOT_TESTED = ", not tested"


@dataclass(frozen=True)
class Judged:
    """A comparison and its answer."""

    contrast: Contrast
    metric: Metric
    answer: Answer

    @property
    def words(self) -> str:
        """The answer in words, for the right of its row in a picture."""
        if self.contrast.verdict == "not-testable":
            return "could not be made"
        if self.contrast.verdict == "descriptive":
            return self._described
        return words(self.answer, self.metric)

    @property
    def _described(self) -> str:
        """The words for a comparison without a test: ``−3.1%, not tested``."""
        c = self.contrast
        if c.shift is None:
            return "could not be made"
        change = wording.quantity(c.shift, self.metric, 3) if c.relative is None else wording.percent(c.relative)
        return f"{change}{_NOT_TESTED}"


def judged_of(compared: tuple[Contrast, ...], design: Design, metrics: tuple[Metric, ...]) -> tuple[Judged, ...]:
    """The comparisons with their answers, the greatest reduction first, those without a size last."""
    known = {m.name: m for m in metrics}
    left = left_by_holm([c.p_holm for c in compared], 1 - design.level)
    found = [
        Judged(c, known[c.metric], _answer(c, design, among, len(compared)))
        for c, among in zip(compared, left, strict=True)
    ]
    return tuple(sorted(found, key=lambda one: inf if one.answer.change is None else one.answer.change))


def _answer(c: Contrast, design: Design, among: int, comparisons: int) -> Answer:
    in_pairs, late = design.test == "pairs", c.timed_out + c.timed_out_baseline
    numbers = c.n + c.timed_out, c.n_baseline + c.timed_out_baseline
    finished = (c.pairs or 0) if in_pairs else min(c.n, c.n_baseline)
    tested = c.pairs_tested if in_pairs else min(numbers)
    found = Evidence(
        p=c.p_holm,
        towards=c.verdict if c.verdict in ("lower", "higher") else None,
        change=c.relative,
        interval=c.relative_interval,
        shift=c.shift,
        shift_interval=c.shift_interval,
        pairs=finished,
        tested=finished if tested is None else tested,
        late=late,
        numbers=None if in_pairs else ((c.n, c.n_baseline), numbers),
        against=None if in_pairs or c.n == c.n_baseline else (c.n, c.n_baseline),
        smallest_p=None if in_pairs or numbers[0] == numbers[1] else c.smallest_p,
    )
    return judged(found, level=design.level, family=among * design.p_factor, comparisons=comparisons, test=design.test)


def headline(compared: tuple[Judged, ...], design: Design) -> str:
    """The greatest change that was found, and the answers of the other comparisons."""
    if not compared:
        return "This study compares nothing: it has one policy, or no baseline ran."
    if all(one.contrast.verdict == "not-testable" for one in compared):
        return "Nothing can be compared yet: a condition in every comparison has no executions."
    if not design.tested:
        return _described(compared, design)
    found = [one for one in compared if one.answer.said in ("lower", "higher")]
    if not found and len(compared) > 1:
        comparisons = wording.count(len(compared), "comparison")
        return f"No difference was found in {comparisons}: {_tally(compared)}{_undecided(compared)}."
    most = max(found or compared, key=lambda one: abs(log1p(max(one.answer.change or 0.0, -0.999999))))
    rest = f"; of {len(compared)} comparisons {_tally(compared)}" if len(compared) > 1 else ""
    return f"{_sentence(most, design)} ({', '.join(facts(most.answer, most.metric))}){rest}."


def _described(judged: tuple[Judged, ...], design: Design) -> str:
    """The greatest change, and a note that nothing is tested."""
    sized = [one for one in judged if one.contrast.shift is not None]
    if not sized:
        return "Nothing can be compared yet: a condition in every comparison has no executions."
    most = max(sized, key=lambda one: abs(log1p(max(one.answer.change or 0.0, -0.999999))))
    greatest = f", the greatest of {len(sized)} changes" if len(sized) > 1 else ""
    told = ", ".join(facts(most.answer, most.metric))
    fewest = min(min(one.contrast.n, one.contrast.n_baseline) for one in sized)  # an import plans no number
    executions = fewest if design.executions is None else design.executions
    few = f"{executions} executions of each are" if executions != 1 else "one execution of each is"
    tests = "a test" if len(judged) == 1 else f"tests of {len(judged)} comparisons"
    said = _sentence(most, design).removesuffix(_NOT_TESTED)
    return f"{said}{greatest} ({told}){_NOT_TESTED}: {few} too few for {tests}."


def _sentence(one: Judged, design: Design) -> str:
    """A comparison as a sentence: ``gups is 38.1% faster under 2M than under kernel``."""
    c, said = one.contrast, one.words
    if c.workload == COMMAND:
        return sentence(one.answer, one.metric, c.policy, c.baseline)
    lead = "" if one.metric.kind == "time" else f"{one.metric.label}: "
    meaning = policy_summary(design.policy_texts.get(c.policy, ""))
    policy = f"{c.policy} ({meaning})" if meaning else c.policy
    if one.answer.said not in ("lower", "higher"):
        return f"{lead}{c.workload} under {policy} against {c.baseline}: {said}"
    said, beside = aside(one.answer, said)
    than = "as" if " times as " in said else "than"
    verb = "takes" if said.endswith("as long") else "is"
    return f"{lead}{c.workload} {verb} {said} under {policy} {than} under {c.baseline}{beside}"


def _tally(judged: tuple[Judged, ...]) -> str:
    """The numbers of answers: ``6 are faster, 2 slower, 3 the same within ±3% and 1 cannot be told``."""
    names = ("faster", "slower") if all(one.metric.kind == "time" for one in judged) else ("lower", "higher")
    counts = Counter("unmade" if one.contrast.verdict == "not-testable" else one.answer.said for one in judged)
    said = (
        ("lower", names[0]),
        ("higher", names[1]),
        ("same", f"the same within ±{100 * NEGLIGIBLE:g}%"),
        ("cannot-tell", "cannot be told"),
        ("unmade", "could not be made"),
    )
    parts = [(key, counts[key], name) for key, name in said if counts[key]]
    shown = [
        f"{n} {('is ' if n == 1 else 'are ') if i == 0 and key in ('lower', 'higher', 'same') else ''}{name}"
        for i, (key, n, name) in enumerate(parts)
    ]
    return wording.listing(shown)


def _undecided(judged: tuple[Judged, ...]) -> str:
    """The changes that the undecided comparisons would have missed."""
    seen = [one.answer.seen for one in judged if one.answer.said == "cannot-tell" and one.answer.seen is not None]
    if not seen:
        return ""
    low, high = (f"{wording.digits(100 * end, 2)}%" for end in (min(seen), max(seen)))
    return f" (changes under {low if low == high else f'{low} to {high}'} would not be seen)"


@dataclass(frozen=True, repr=False)
class ShownAnalysis(Shown, Analysis):
    """An analysis that prints as its verdict: every planned comparison as in the first picture, then the caveats."""

    def _title(self) -> str:
        return self.headline

    def _rows(self) -> list[tuple[str, str]]:
        rows = []
        for one in judged_of(self.compared(), self.design, self.metrics):
            name = f"{one.contrast.workload} · {one.contrast.policy}"
            rows.append((name, f"{one.words} ({', '.join(facts(one.answer, one.metric))})"))
        return rows + [("warning", caveat) for caveat in self.caveats]

    def __repr__(self) -> str:
        return str(self)
