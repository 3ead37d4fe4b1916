"""Predicts run time with another TLB or other pages: the training's simulator gives counts, the model gives R."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pagelab import policy as policies
from pagelab.errors import BadInputError
from pagelab.layouts import footprint
from pagelab.layouts.layout import POOLS
from pagelab.model_run import document
from pagelab.model_run.document import Campaign
from pagelab.model_run.executions import TRIAL, trial_records
from pagelab.model_run.simulation import digest, processor_of, trace_digest
from pagelab.models.document import CampaignSummary, ModelFile, SimulatedBy, Told, inside
from pagelab.models.gaussian_process import Of
from pagelab.models.prediction import UNUSED, Prediction, predict
from pagelab.simulate import hardware
from pagelab.simulate.placements import Placement, placement, placement_of_pages
from pagelab.simulate.tlb_runs import tlb
from pagelab.study.store import NAME as STORE
from pagelab.trace import Trace


def predict_for(
    file: ModelFile,
    path: Path,
    processor: str | None,
    pages: str | None,
    policy: Path | None = None,
    *,
    model: str = "gp",
    of: Of = "mean",
    level: float = 0.95,
) -> Prediction:
    """Predicts R on the training's machine as if it had the TLB of ``processor`` (None: its own) and these ``pages``.

    ``path`` is the file's own path; its trace lies beside it. ``pages``: a size or rule of ``--pages``; 4K if neither
    it nor a ``policy`` is given. If the training used counts of the hardware, simulated counts are multiplied by the
    nearest anchor's ratio of counted to simulated (as Alam et al., ISCA 2017), and a warning says so.

    Raises `BadInputError` for models without a trace, and if the trace or the description no longer exists.
    """
    campaign, own = _known(file, path)
    trace, simulated = known_trace(file, path)
    name = processor or simulated.processor
    if hardware.needs_references(hardware.load(name)) and Trace(trace).header.get("content") == "runs":
        raise BadInputError(
            f"cannot simulate {file.workload} on {name}: its stores have entries of their own, and the model's trace "
            "has page runs; make the model with: pagelab model run --references"
        )
    wanted = placement(policy) if policy is not None else wanted_pages(pages or "4K")
    made = document.read(inside(path).parent)
    wanted = wanted if made is None else of_program(wanted, made, inside(path).parent)
    counts = simulated_counts(trace, name, wanted, caches=simulated.caches)
    warnings = []
    if file.source == "counted":
        anchor = "2M" if wanted.name in ("2M", "1G") else "4K"
        counts = _scaled(file, trace, simulated, counts, anchor)
        message = (
            f"counts are simulated, and scaled by counted over simulated of {anchor} pages: the model's are counted"
        )
        warnings.append(Told(kind="scaled", message=message))
    # Simulations give all counts, whether the model uses them or not.
    told = predict(file, counts["h"], counts["m"], counts["c"], model=model, of=of, level=level)
    return told.model_copy(
        update={
            "processor": processor or own.processor,
            "pages": wanted.name,
            "warnings": [*warnings, *(one for one in told.warnings if one.kind != UNUSED)],
            "measured_4k": next(row.r for row in file.layouts if row.layout == file.anchors["4K"]),
            "estimator": campaign.estimator,
        }
    )


def wanted_pages(text: str) -> Placement:
    """Parses ``--pages``. A bare size is for heap, mappings and arenas, as in layouts; the rest keeps base pages."""
    if text != "4K" and text.isalnum():
        rules = [f'[[rule]]\nmemory = "{pool}"\npages = "{text}"\n' for pool in POOLS]
        return placement(policies.parse("\n".join([f'name = "{text}"', *rules]), f"--pages {text}"))
    return placement_of_pages(text)


def of_program(wanted: Placement, campaign: Campaign, directory: Path) -> Placement:
    """The placement for a program that does not use some kinds of memory, by the campaign's trial and its footprint.

    A policy of ``pagelab advise`` has one mosaic for anonymous mappings and arenas, whose pools are two in the trace.
    Where one of the two has no page, not even before the traced window, the mosaic is of the other.
    """
    if not (directory / TRIAL / STORE).exists():
        return wanted
    native = footprint.of_record(trial_records(directory / TRIAL)["2M"])
    used = {pool for pool, _ in (*campaign.footprint, *native.tiles)}
    return replace(wanted, unused=frozenset(POOLS) - used)


def known_trace(file: ModelFile, path: Path) -> tuple[Path, SimulatedBy]:
    """The model's trace, and the simulation of its counts, by the description that lies beside the file.

    Raises `BadInputError` if there is no trace, or if it or the processor's description has changed since.
    """
    _, simulated = _known(file, path)
    directory = inside(path).parent
    trace, processor = directory / simulated.trace, processor_of(directory, simulated.processor)
    cannot = f"cannot simulate {file.workload}:"
    if not trace.exists():
        raise BadInputError(f"{cannot} its trace {trace} is gone; put it back, or give counts: --h N --m N …")
    if simulated.trace_digest not in (None, trace_digest(trace, simulated.references or 0)):
        raise BadInputError(
            f"{cannot} {trace} is another trace than the model was made with; put that back, or make the model anew: "
            "pagelab model run --into DIR"
        )
    if digest(hardware.load(processor)) != simulated.description:
        raise BadInputError(
            f"{cannot} the description of {simulated.processor} has changed since the model was made; make the model "
            "anew: pagelab model run --into DIR"
        )
    return trace, simulated.model_copy(update={"processor": processor})


def _known(file: ModelFile, path: Path) -> tuple[CampaignSummary, SimulatedBy]:
    if file.campaign is None or file.campaign.simulated is None:
        why = "it was imported" if file.campaign is None else "its campaign needed none"
        raise BadInputError(
            f"cannot simulate for {path}: it has no trace ({why}); give counts of your simulator: --h N --m N --c N"
        )
    return file.campaign, file.campaign.simulated


def simulated_counts(trace: Path, processor: str, wanted: Placement, *, caches: bool) -> dict[str, float]:
    """Simulated H, M and C of the trace with these pages."""
    row = tlb(trace, processor, wanted, caches=caches).executions.row(0, named=True)
    return {name: float(row[name]) for name in ("h", "m", "c")}


def _scaled(
    file: ModelFile, trace: Path, simulated: SimulatedBy, counts: dict[str, float], anchor: str
) -> dict[str, float]:
    """The counts scaled to those of the hardware; unchanged where the anchor's count is 0."""
    own = next(row for row in file.layouts if row.layout == file.anchors[anchor])
    base = simulated_counts(trace, simulated.processor, wanted_pages(anchor), caches=simulated.caches)
    counted = {"h": own.h, "m": own.m, "c": own.c}
    found = {}
    for name, value in counts.items():
        real = counted[name]
        found[name] = value * real / base[name] if real is not None and base[name] > 0 else value
    return found
