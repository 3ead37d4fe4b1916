"""The printed result of a campaign: a verdict, the table, facts and the next command."""

from __future__ import annotations

import shlex
from pathlib import Path

from pagelab.model_run.document import Campaign
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
    errors = points.r_se
    spread = "" if errors is None else f" ± {wording.percent(_error(file, small, large), signed=False)}"
    less = "less" if gain >= 0 else "more"
    size = wording.percent(abs(gain), signed=False)
    return f"{answer.verdict(file, file.fits)}; in 2M pages alone it takes {size}{spread} {less} time than in 4K"


def _error(file: ModelFile, small: int, large: int) -> float:
    """Twice the standard error of R(2M)/R(4K)."""
    points = file.points()
    errors = points.r_se
    assert errors is not None
    ratio = points.r[large] / points.r[small]
    relative = (errors[large] / points.r[large]) ** 2 + (errors[small] / points.r[small]) ** 2
    return float(2 * ratio * relative**0.5)


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
        *probed(file),
    ]


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


def following(directory: Path) -> str:
    """The next command."""
    name = shlex.quote(str(directory))
    return (
        f"next: pagelab model report {name} --out DIR\n"
        "      (the same as a page, with figures)\n"
        f"      pagelab predict {name} --processor NAME --pages 2M\n"
        "      (its run time with another TLB)"
    )
