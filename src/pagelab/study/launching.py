"""Runs of a study on this machine, through :mod:`pagelab.runner`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import machine
from ..contract.request import Request
from ..errors import BadInputError, MachineError, PagelabError
from ..launcher import end_running
from ..record import Record, RunWarning, WarningKind
from ..runner import run, scarce
from .feasible import cannot
from .job import RunNotStarted
from .plan import Condition, Plan
from .primary import is_processor_time
from .tools import Tools


class LocalRunner:
    """One condition, once, here."""

    def run(self, condition: Condition, stderr: Path) -> Record:
        try:
            return run(request(condition, stderr))
        except (BadInputError, MachineError) as error:
            # Refused for this run alone (a device gone, a pool drained): it is recorded, and the others go on.
            raise RunNotStarted(str(error)) from error

    def give_up(self) -> None:
        """Ends what runs in any thread."""
        end_running()


def request(condition: Condition, stderr: Path) -> Request:
    """What the launcher is asked for ``condition``."""
    return condition.asking(stderr=str(stderr)).request if condition.keeps_stderr else condition.request


def describe_machine() -> dict[str, Any]:
    """The machine as a session finds it."""
    return {"machine": machine.describe(), "provenance": machine.provenance()}


NOISE = ("the machine was not quiet", "the machine was almost quiet")
"""Begins of what :func:`noise_now` tells."""


def tells_noise(text: str) -> bool:
    """Whether this is what :func:`noise_now` told, as a message or as a sentence of a report."""
    return text.lower().startswith(NOISE)


def noise_now(plan: Plan) -> RunWarning | None:
    """A short self-measurement before a session's first run: what disturbs, of what matters to what is compared."""
    from ..machine import noise
    from ..machine.sysfs import Tree

    found = noise.measure(Tree())
    wall = not all(is_processor_time(condition.metric) for condition in plan.active())
    verdict = noise.judge(found, wall=wall)
    if verdict.quiet:
        return None
    much = any(one.much for one in verdict.disturbances)
    told = "; ".join(one.text for one in verdict.disturbances)
    # A load of other programs takes no processor time away, so the machine may be quiet and busy.
    for_what = "" if wall else " for processor time"
    return RunWarning(
        kind=WarningKind.NOISY_MACHINE,
        severity="warning" if much else "info",
        message=f"{NOISE[0 if much else 1]}{for_what} when the session began: {told}; {verdict.disturbances[0].advice}",
        data={**asdict(found), "load": verdict.load, "disturbed_by": [one.what for one in verdict.disturbances]},
    )


def limits_now(plan: Plan) -> list[RunWarning]:
    """Limits that are too tight for some policy of the plan, each once, as the policy that takes most says it."""
    policies = {(condition.request.policy_toml, condition.request.preload): condition for condition in plan.active()}
    worst: dict[str, RunWarning] = {}
    for condition in policies.values():
        for warning in scarce(request(condition, Path("/dev/null"))):
            name = str(warning.data["resource"])
            if name not in worst or worst[name].data["adds"] < warning.data["adds"]:
                worst[name] = warning
    return list(worst.values())


def colours_now(plan: Plan) -> str | None:
    """Measures whether frame numbers reach this machine's caches, and stores it, where the plan places frames and no
    verdict of this boot is known. A policy of frames can be judged only with it.
    """
    from ..machine.colours.colour_warnings import governs_frames, sentence
    from ..machine.colours.store import store
    from ..machine.probe_colours import probe

    if not any(governs_frames(condition.request.policy_toml) for condition in plan.active()):
        return None
    if machine.describe()["colour_verdict"] is not None:
        return None
    try:
        store(probe())
    except PagelabError as error:
        return f"warning: whether frame numbers reach this machine's caches was not measured: {error}"
    found = machine.describe()["colour_verdict"]
    return None if found is None else sentence(found)


def local_tools() -> Tools:
    """Everything a session needs, on this machine."""
    described = machine.describe()
    return Tools(
        LocalRunner(),
        lambda condition: cannot(condition, described),
        describe_machine,
        noise_now,
        limits_now,
        colours_now,
    )
