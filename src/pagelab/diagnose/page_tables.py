"""The tables of a diagnosis."""

from __future__ import annotations

from pagelab.analysis import wording
from pagelab.analysis.metrics import metric_named
from pagelab.diagnose import words
from pagelab.diagnose.model import Diagnosis, Finding
from pagelab.report.tables import NONE, Table, grouped


def sources(found: Diagnosis) -> Table:
    """Every source with its verdict; what was left out has its reason."""
    return Table(
        columns=(
            "pinned",
            "verdict",
            "SD ratio",
            "deviation ratio",
            "variance removed",
            "mean shift",
            "share of the choice",
            "p (Holm)",
        ),
        rows=tuple(_source_row(one) for one in found.findings),
        words=2,
        caption="Sources of variance, each pinned alone",
        note=f"Intervals {wording.level(found.settings.level)}. SD ratio: deviation with the source pinned over the "
        "default’s. Deviation ratio: the same of mean absolute deviations, hardly moved by a few extreme executions. "
        "Share of the choice: of the variance, where the value is left to chance. These figures chose what was "
        "confirmed: they are not to be quoted.",
    )


def _source_row(one: Finding) -> tuple[str, ...]:
    verdict = words.VERDICTS[one.verdict] + (f": {one.reason}" if one.reason else "")
    if one.sd_ratio is None or one.removed is None or one.deviation_ratio is None:
        return (one.label, verdict, *[NONE] * 6)
    return (
        one.label,
        verdict,
        words.ratio(one.sd_ratio),
        words.ratio(one.deviation_ratio),
        f"{one.removed.estimate:.0%}".replace("-", wording.MINUS),
        NONE if one.mean_shift is None else words.plus_minus(one.mean_shift),
        NONE if one.share is None else f"{one.share.estimate:.0%} ({one.share.low:.0%}–{one.share.high:.0%})",
        NONE if one.p_holm is None else wording.p_value(one.p_holm).removeprefix("p = "),
    )


def values(found: Diagnosis) -> Table:
    """Every pinned value: how it is had, its mean and its spread."""
    metric = metric_named(found.metric)
    rows, groups = grouped(
        [
            (
                one.label,
                [
                    (value.name, value.how, wording.quantity(value.mean, metric), words.spread(value.cv))
                    for value in one.values
                ],
            )
            for one in found.findings
        ]
    )
    mean, spread = wording.quantity(found.default_mean, metric), words.spread(found.default_spread.estimate)
    return Table(
        columns=("value", "how to have it", "mean", "spread"),
        rows=rows,
        groups=groups,
        words=2,
        caption="Every value that was pinned",
        note=f"By default: mean {mean}, spread {spread}. {wording.count(found.blocks, 'execution')} of each value.",
    )


def confirmation(found: Diagnosis) -> Table:
    """The figures that may be quoted."""
    one = found.confirmation
    rows: tuple[tuple[str, ...], ...] = ()
    if one is not None:
        rows = (
            ("default", str(one.executions), words.spread(one.cv_default), NONE, NONE, NONE),
            (
                one.recommended,
                str(one.executions),
                words.spread(one.cv_recommended),
                words.ratio(one.sd_ratio),
                words.plus_minus(one.mean_shift),
                wording.p_value(one.p).removeprefix("p = "),
            ),
        )
    return Table(
        columns=("executions of", "n", "spread", "SD ratio", "mean shift", "p"),
        rows=rows,
        caption="Confirmation: fresh, interleaved executions",
        note="These had no part in choosing what is recommended, and only these are to be quoted.",
    )
