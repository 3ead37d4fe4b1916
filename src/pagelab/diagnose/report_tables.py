"""Makes the tables of a diagnosis."""

from __future__ import annotations

from pagelab.analysis import wording
from pagelab.analysis.metrics import metric_named
from pagelab.diagnose import words
from pagelab.diagnose.model import Diagnosis, Finding
from pagelab.report.tables import NONE, Table, grouped
from pagelab.stats import coverage


def sources(found: Diagnosis) -> Table:
    """The table of all sources with their verdicts; those left out have the reason."""
    return Table(
        columns=(
            "pinned",
            "verdict",
            "variance removed",
            "SD ratio",
            "deviation ratio",
            "mean shift",
            "share of a random value",
            "p (Holm)",
            "compared with",
        ),
        rows=tuple(_source_row(one) for one in found.findings),
        words=2,
        caption="Sources of variance, each pinned alone",
        note=f"Intervals {wording.level(found.settings.level)}, each by itself. Variance removed: of log times, with "
        "the source pinned, against what it is compared with: all that pinning does besides. SD ratio: the standard "
        "deviations of that. Deviation ratio: the same of mean absolute deviations, hardly moved by a few extreme "
        "executions. Share of a random value: of the variance over values drawn at random. These figures chose what "
        f"was confirmed: they are not to be quoted. {coverage_of(found)}",
    )


def coverage_of(found: Diagnosis) -> str:
    """A sentence on intervals that contain the true value too rarely with this number of blocks; empty without any."""
    shown = {
        name: said
        for name, said in coverage.DIAGNOSED.items()
        if "share" not in name or any(one.share is not None for one in found.findings)
    }
    return coverage.sentence([found.blocks], shown, "executions of each value")


def _source_row(one: Finding) -> tuple[str, ...]:
    verdict = one.told + (f": {one.reason}" if one.reason else "")
    if one.sd_ratio is None or one.removed is None or one.deviation_ratio is None:
        return (one.label, verdict, *[NONE] * 7)
    return (
        one.label,
        verdict,
        words.gone(one.removed),
        words.ratio(one.sd_ratio),
        words.ratio(one.deviation_ratio),
        NONE if one.mean_shift is None else words.plus_minus(one.mean_shift),
        NONE if one.share is None else words.gone(one.share),
        NONE if one.p_holm is None else wording.p_cell(one.p_holm),
        one.against,
    )


def values(found: Diagnosis) -> Table:
    """The table of all pinned values: setting, mean and spread."""
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
    """The table of the figures that may be quoted."""
    one = found.confirmation
    rows: tuple[tuple[str, ...], ...] = ()
    if one is not None:
        rows = tuple(
            (
                each.against,
                str(one.executions),
                words.spread(each.cv_against),
                words.spread(one.cv_recommended),
                words.gone(each.removed),
                words.ratio(each.sd_ratio),
                words.plus_minus(one.mean_shift) if number == 0 else NONE,
                wording.p_cell(each.p),
                f"{each.power:.0%}",
            )
            for number, each in enumerate(one.contrasts)
        )
    name = "it" if one is None else one.recommended
    return Table(
        columns=(
            "compared with",
            "n of each",
            "its spread",
            f"spread with {name}",
            "variance removed",
            "SD ratio",
            "mean shift",
            "p",
            "power at the effect seen",
        ),
        rows=rows,
        caption="Confirmation: fresh, interleaved executions",
        note="These had no part in choosing what is recommended, and only these are to be quoted. The effect seen is "
        "that of the first executions.",
    )
