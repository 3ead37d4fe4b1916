"""Makes the :class:`~pagelab.advise.document.AdviceDocument` of a finished advice, its verdict included."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from pagelab.advise.campaign import ADVICE, BASE, CHECK, FOOTPRINT, POLICY, Asked, Found
from pagelab.advise.choose import Choice
from pagelab.advise.design import Region
from pagelab.advise.document import AdviceDocument, Checked, Promise, RegionGain
from pagelab.analysis import analyse, answer, load, wording
from pagelab.analysis.answer import Answer
from pagelab.analysis.data import StudyData
from pagelab.analysis.model import Analysis, Metric
from pagelab.analysis.try_document import change
from pagelab.analysis.verdict import judged_of
from pagelab.errors import quoted
from pagelab.layouts.layout import POOLS
from pagelab.study.budget import MOST_OF_A_COMMAND
from pagelab.study.store import Store

_LEVEL = 0.95
_KERNEL = "the kernel's own way"
_EVERYTHING = "everything in 2M pages"


def document(asked: Asked, found: Found, directory: Path) -> AdviceDocument:
    """The document of an advice, with the check's study in ``directory``; it says so if nothing was checked."""
    answers: dict[str, Answer] = {}
    analysis: Analysis | None = None
    promise, resident = None, None
    chosen = _chosen(found)
    promised = found.choice if chosen and found.effects is not None else None
    if found.choice is not None:
        with Store.open(directory / CHECK, write=False) as store:
            data = load(store)
        analysis = analyse(between(data, "kernel", (ADVICE, "2M")))
        answers = _answers(analysis, (ADVICE, "2M"))
        resident = _resident(data, ADVICE)
        if promised is not None:
            against = analyse(between(data, BASE, (ADVICE,)))
            promise = _promise(promised, _answers(against, (ADVICE,)).get(ADVICE), against.primary)
    said = verdict(found, answers, None if analysis is None else analysis.primary)
    policy = directory / POLICY if chosen else None
    following, why = next_command(asked, found, answers, directory, policy)
    return AdviceDocument(
        command=list(asked.argv),
        verdict=said,
        metric=found.metric,
        metric_why=found.metric_why,
        evidence=_evidence(asked),
        budget_bytes=asked.budget,
        used_bytes=found.used,
        mostly_empty=_mostly_empty(asked, found, directory),
        huge_bytes=found.choice.huge_bytes if found.choice else 0,
        left_out=found.choice.left_out if found.choice else 0,
        promised_percent=_percent(promised.gain) if promised else None,
        promised_low_percent=_percent(promised.low) if promised else None,
        promised_high_percent=_percent(promised.high) if promised else None,
        promise=promise,
        regions=_gains(found),
        rounds=found.rounds,
        executions=found.executions,
        checked=[_checked(name, one, analysis) for name, one in answers.items() if analysis is not None],
        resident_base_bytes=found.resident_base,
        resident_huge_bytes=found.resident_huge,
        resident_advice_bytes=resident,
        caveats=list(analysis.caveats) if analysis else [],
        directory=str(directory),
        policy=str(policy) if policy else None,
        next=following,
        why=why,
    )


def between(data: StudyData, base: str, others: tuple[str, ...]) -> StudyData:
    """The check as if it had only these conditions, each of ``others`` compared with ``base``."""
    conditions = [
        one.model_copy(update={"baseline": one.policy == base})
        for one in data.plan.conditions
        if one.policy in (base, *others)
    ]
    runs = data.runs.filter(pl.col("policy").is_in([one.policy for one in conditions]))
    kept = set(runs["run_id"])
    return replace(
        data,
        plan=data.plan.model_copy(update={"conditions": conditions, "baseline": base}),
        runs=runs,
        measurements=data.measurements.filter(pl.col("run_id").is_in(list(kept))),
        records=tuple((run, record) for run, record in data.records if run in kept),
    )


def _answers(analysis: Analysis, names: tuple[str, ...]) -> dict[str, Answer]:
    judged = judged_of(analysis.compared(), analysis.design, analysis.metrics)
    by_policy = {one.contrast.policy: one.answer for one in judged}
    return {name: by_policy[name] for name in names if name in by_policy}


def _promise(promised: Choice, got: Answer | None, metric: Metric) -> Promise | None:
    """The measured gain against base pages, beside what was promised against them."""
    if got is None or promised.low is None or promised.high is None:
        return None
    kept: Literal["within", "below", "above"] | None = None
    if got.change is not None:
        kept = "below" if -got.change < promised.low else "above" if -got.change > promised.high else "within"
    return Promise(kept=kept, **change(got, metric))


def _resident(data: StudyData, policy: str) -> int | None:
    runs = set(data.runs.filter(pl.col("policy") == policy)["run_id"])
    peaks = [record.peak_rss_bytes for run, record in data.records if run in runs and record.peak_rss_bytes]
    return int(np.median(peaks)) if peaks else None


def place(region: Region) -> str:
    """``heap 0–64M``."""
    return f"{region.pool} {region.start >> 20}–{region.end >> 20}M"


def joined(regions: Iterable[Region]) -> list[Region]:
    """The regions with neighbours joined, in order of pools and addresses."""
    found: list[Region] = []
    for region in sorted(regions, key=lambda region: (POOLS.index(region.pool), region.start)):
        if found and found[-1].pool == region.pool and found[-1].end == region.start:
            found[-1] = Region(region.pool, found[-1].start, region.end)
        else:
            found.append(region)
    return found


def _kind(pool: str) -> Literal["heap", "anon", "arenas"]:
    return "heap" if pool == "heap" else "arenas" if pool == "arenas" else "anon"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _evidence(asked: Asked) -> Literal["mosaics", "trace", "samples"]:
    if asked.evidence is None:
        return "mosaics"
    return "trace" if asked.evidence.trace is not None else "samples"


def _chosen(found: Found) -> list[Region]:
    if found.choice is None:
        return []
    return [region for region, taken in zip(found.regions, found.choice.chosen, strict=True) if taken]


def verdict(found: Found, answers: dict[str, Answer], metric: Metric | None) -> str:
    """The first line: what is advised, and what the check says of it; ``metric`` is None where nothing was checked.

    ``answers``: of the ``advice``, if there is one, and of everything in ``2M`` pages, each against the kernel's way.
    """
    if metric is None:
        uses = wording.size(sum(found.used.values()))
        return f"Nothing to gain: the command uses at most {uses} of heap and anonymous memory, less than one 2M page."
    chosen = _chosen(found)
    everything = answers["2M"]
    whole = (
        f"{answer.sentence(everything, metric, _EVERYTHING, _KERNEL)} ({', '.join(answer.facts(everything, metric))})"
    )
    if not chosen:
        if found.choice is not None and found.choice.left_out:
            least = found.choice.least_left_out
            return (
                f"The budget has no room for any region that gains: the smallest of {found.choice.left_out} has "
                f"{wording.size(least)}, and mosaics do not tell which part of a region gains; give it --budget "
                f"{-(-least >> 20)}M, or more --minutes, with which regions are smaller."
            )
        if everything.said == "lower":
            return f"No region stands out, but {whole}."
        if everything.said == "same":
            words = answer.words(everything, metric)
            return f"Nothing to gain: {_EVERYTHING} is the {words}, compared with {_KERNEL}."
        return f"Nothing to advise{_unseen(found)}; {whole}."
    spans = joined(chosen)
    shown = wording.listing([place(span) for span in spans[:3]]) if len(spans) <= 3 else f"{len(spans)} regions"
    huge = wording.size(sum(region.bytes for region in chosen))
    what = f"{shown} in 2M pages ({huge} of {_addresses(found)})"
    checked = answers["advice"]
    facts = ", ".join(answer.facts(checked, metric))
    if checked.said == "lower":
        return f"{answer.sentence(checked, metric, what, _KERNEL)} ({facts})."
    if everything.said == "lower":
        said = answer.sentence(checked, metric, what, _KERNEL)
        return f"{wording.capital(whole)}. Which part of it gains is not confirmed: {said} ({facts})."
    if checked.said == "higher":
        return f"Leave it as it is: {answer.sentence(checked, metric, what, _KERNEL)} ({facts})."
    if found.misses is not None and found.choice is not None:
        share = wording.percent(float(found.misses[found.choice.chosen].sum()), signed=False)
        said = answer.sentence(checked, metric, what, _KERNEL)
        return f"Not confirmed: the advised regions have {share} of the misses, but {said} ({facts})."
    return f"Not confirmed: mosaics promised a gain, but {answer.sentence(checked, metric, what, _KERNEL)} ({facts})."


def _unseen(found: Found) -> str:
    """What was not seen; of mosaics with the largest gain of a region that its interval holds."""
    if found.effects is None:
        return ": no region has misses"
    most = max(one.high_percent or 0.0 for one in _gains(found)) / 100
    if most <= 0:
        return ": no region gains by 2M pages"
    told = wording.percent(most, signed=False)
    return f" yet: no region was seen to gain by 2M pages, but one may gain up to {told}"


def _addresses(found: Found) -> str:
    """How many addresses the regions have, and how much memory there was at most where that is less.

    The record has no peak of each pool. That of the largest process includes its files, code and stack.
    """
    total = sum(found.used.values())
    told = f"{wording.size(total)} of addresses"
    if 0 < found.resident_base < total:
        told += f", of which at most {wording.size(found.resident_base)} were resident"
    return told


def _mostly_empty(asked: Asked, found: Found, directory: Path) -> str:
    """A sentence if less than half of the regions' addresses can have had memory at once; else nothing."""
    if not found.regions or not 0 < found.resident_base < sum(found.used.values()) / 2:
        return ""
    policy = directory / FOOTPRINT / "policies" / "4K.toml"
    return (
        f"Most of these addresses are empty: the regions have {wording.size(sum(found.used.values()))} of them, and no "
        f"process had more than {wording.size(found.resident_base)} resident at once in 4K pages, all its memory "
        f"included; what lies where: pagelab map --policy {quoted(policy)} -- {shlex.join(asked.argv)}"
    )


def _gains(found: Found) -> list[RegionGain]:
    if found.choice is None:
        return []
    if found.misses is not None:
        return [
            RegionGain(
                pool=_kind(region.pool),
                start_bytes=region.start,
                end_bytes=region.end,
                gain_percent=None,
                low_percent=None,
                high_percent=None,
                misses_percent=100 * float(share),
                chosen=bool(taken),
            )
            for region, share, taken in zip(found.regions, found.misses, found.choice.chosen, strict=True)
        ]
    assert found.effects is not None
    low, high = np.quantile(found.effects.draws, [0.025, 0.975], axis=0)
    return [
        RegionGain(
            pool=_kind(region.pool),
            start_bytes=region.start,
            end_bytes=region.end,
            gain_percent=100 * float(found.effects.mean[at]),
            low_percent=100 * float(low[at]),
            high_percent=100 * float(high[at]),
            chosen=bool(found.choice.chosen[at]),
        )
        for at, region in enumerate(found.regions)
    ]


def _checked(name: str, one: Answer, analysis: Analysis) -> Checked:
    return Checked(condition="advice" if name == "advice" else "2M", **change(one, analysis.primary))


def next_command(
    asked: Asked, found: Found, answers: dict[str, Answer], directory: Path, policy: Path | None
) -> tuple[str, str]:
    """The command to type next, and what for."""
    command = shlex.join(asked.argv)
    if policy is not None and answers["advice"].said == "lower":
        return f"pagelab run --policy {quoted(policy)} -- {command}", "runs it as advised"
    if "2M" in answers and answers["2M"].said == "lower" and asked.budget is None:
        return f"pagelab run --pages 2M -- {command}", "runs it with everything in 2M pages"
    unfitting = found.choice is not None and found.choice.left_out and policy is None
    unsure = unfitting or any(one.said == "cannot-tell" for one in answers.values())
    if unsure and asked.minutes < MOST_OF_A_COMMAND:
        needed = max((one.needed or 0) / max(1, one.pairs) for one in answers.values())
        minutes = min(MOST_OF_A_COMMAND, ceil(asked.minutes * max(2.0, min(needed, 100.0))))
        return (
            f"pagelab advise --minutes {minutes}{asked.options} -- {command}",
            "more executions, to see smaller gains",
        )
    where = directory / (CHECK if found.choice is not None else FOOTPRINT)
    if found.choice is None:
        return f"pagelab map -- {command}", "what memory it uses"
    return f"pagelab report {quoted(where)}", "every execution of the check"
