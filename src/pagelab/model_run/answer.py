"""The printed result of a campaign: a verdict, the table, facts and the next command."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from pagelab.errors import quoted
from pagelab.model_run.document import Campaign, EstimatorName
from pagelab.model_run.estimate import Own, combined, times
from pagelab.models.document import ModelFile


def verdict(file: ModelFile) -> str:
    """The models' verdict, and the gain of 2M pages everywhere."""
    from pagelab.analysis import wording
    from pagelab.models import answer

    assert file.fits is not None
    points = file.points()
    small, large = points.anchor("4K"), points.anchor("2M")
    assert small is not None
    assert large is not None
    gain = float(1 - points.r[large] / points.r[small])
    error = _error(file, small, large)
    spread = "" if error is None else f" ± {wording.percent(error, signed=False)}"
    less = "less" if gain >= 0 else "more"
    size = wording.percent(abs(gain), signed=False)
    return f"{answer.verdict(file, file.fits)}; in 2M pages alone it takes {size}{spread} {less} time than in 4K"


def _error(file: ModelFile, small: int, large: int) -> float | None:
    """Half width of the 95% interval of R(2M)/R(4K), from the runs of these two layouts alone; None if not known."""
    points = file.points()
    if file.campaign is None or points.r_sd is None or points.repeats is None:
        return None
    if not points.spread_known[[small, large]].all():
        return None
    how, parts = cast(EstimatorName, file.campaign.estimator), []
    for row in (small, large):
        own = Own.told(float(points.r_sd[row] / points.r[row]), int(points.repeats[row]), how)
        parts.append((own.error, own.repeats - 1))
    error, freedom = combined(parts)
    return float(points.r[large] / points.r[small]) * error * times(freedom)


def facts(campaign: Campaign, file: ModelFile) -> list[str]:
    """Sentences on the source of the counts, the runs, and the machine's speed beside them."""
    trial = campaign.trial
    assert trial is not None
    where = "counted by this machine"
    if trial.counts == "simulated" and campaign.simulated is not None:
        how = campaign.simulated
        where = f"simulated ({how.processor}{', with caches' if how.caches else ''}; {trial.counts_why})"
    what = measured(trial.window, counted=trial.counts == "counted")
    executions = sum(one.repeats * len(one.layouts) for one in campaign.rounds)
    return [
        f"H, M, C: {where}",
        f"R: {what}, the {campaign.asked.estimator} of the repeats; {executions} executions in "
        f"{len(campaign.rounds)} round{'s' if len(campaign.rounds) > 1 else ''}, {campaign.spent_s / 60:.1f} min; "
        f"ended: {campaign.stopped}",
        *_scatter(file),
        *probed(file),
    ]


def _scatter(file: ModelFile) -> list[str]:
    """A sentence on the noise of single runs in the anchors: it may differ between page sizes."""
    points = file.points()
    rows = {size: row for size in ("4K", "2M") if (row := points.anchor(size)) is not None}
    if points.r_sd is None or len(rows) < 2 or not all(points.spread_known[row] for row in rows.values()):
        return []
    own = [f"{points.r_sd[row] / points.r[row]:.1%} in {size} pages" for size, row in rows.items()]
    return [f"single runs scatter by {' and '.join(own)}"]


def measured(window: str | None, *, counted: bool) -> str:
    """The meaning of R: of a window, or of whole executions; in cycles if this machine counts them."""
    if counted:
        return f"cycles of the window {window}" if window else "cycles of whole executions"
    return f"processor time of the window {window}" if window else "user time of whole executions"


def probed(file: ModelFile) -> list[str]:
    """Sentences on the times of the chains of dependent additions and loads that ran beside the executions."""
    summary = file.campaign
    if summary is None:
        return []
    took = [] if summary.cycle_ns is None else [f"a cycle {summary.cycle_ns:.3f} ns"]
    took += [] if summary.memory_ns is None else [f"a load from memory {summary.memory_ns:.3g} ns"]
    return [f"timed beside every execution: {', '.join(took)} (medians)"] if took else []


def following(directory: Path, file: ModelFile) -> str:
    """The next command. Without a trace in the campaign, predictions need the counts of another simulator."""
    name = quoted(directory)
    traced = file.campaign is not None and file.campaign.simulated is not None
    given, what = ("--processor NAME --pages 2M", "TLB") if traced else ("--h H --m M --c C", "H, M and C")
    return (
        f"next: pagelab model report {name} --out DIR\n"
        "      (the same as a page, with figures)\n"
        f"      pagelab predict {name} {given}\n"
        f"      (its run time with {'another' if traced else 'other'} {what})"
    )
