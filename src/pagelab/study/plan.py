"""The validated plan of a study: every condition spelled out. Plain data; it is stored with the results as JSON."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..contract.request import Request

Scalar = str | int | float | bool

METRICS = ("wall_s", "user_s", "system_s", "cpu_s", "peak_rss_bytes", "minor_faults", "major_faults")
"""Metrics that every run has. Some runs also have ``counter.<role>`` and ``measure.<name>``."""

CO_RUN = (
    "both ran at once on one processor, each in caches that the other uses as well: this is another question than how "
    "they differ alone"
)
"""The sentence that stands beside every result of a plan with ``co_run``."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Step(_Model):
    """A set-up or tear-down command, ready to execute."""

    argv: list[str]
    shown: str
    cwd: str


class Precision(_Model):
    """Stop at the first planned look where every contrast's interval is narrow enough."""

    target: float
    looks: list[int]


class Reboots(_Model):
    """A restart of the machine between executions."""

    each: Literal["execution", "block"] = "execution"
    """What has a boot of its own."""
    settle_s: float = 10.0
    """Waited after a boot before its first run."""
    keep: list[str] = Field(default_factory=list)
    """Units that go on beside the study; without any, the network is taken down."""


class Condition(_Model):
    """One workload under one policy with one set of parameters: what is repeated ``executions`` times."""

    index: int
    name: str
    """``workload/policy``, unique in the study."""
    workload: str
    """Label of what is compared across policies: the workload's name and the parameters it uses."""
    policy: str
    """Label of the policy: its name and the parameters that only it uses."""
    workload_name: str
    policy_name: str
    baseline: bool
    parameters: dict[str, Scalar] = Field(default_factory=dict)
    factors: dict[str, str] = Field(default_factory=dict)
    """The same in all conditions of one ``workload``: what it says of itself, or else its name and the parameters it
    uses. Summaries over many workloads group by them (docs/architecture/contracts.md: factors)."""
    needs: list[str] = Field(default_factory=list)
    """What this machine must have: programs, and ``cache L3``."""
    request: Request
    """What every run of it is asked for; ``policy_path`` is the file the policy was read from: relative paths inside it
    (layout CSVs) count from there."""
    keeps_stderr: bool = True
    """Standard error goes into a file of the study directory, which stays there when the run fails."""
    metric: str
    drop_first: int = 0
    """Measurements at the start of each execution that are warm-up: kept, and in no mean."""
    setup: list[Step] = Field(default_factory=list)
    teardown: list[Step] = Field(default_factory=list)
    left_out: str | None = None
    """Why this condition is not run on this machine (``--skip-impossible``)."""

    def asking(self, **changes: Any) -> Condition:
        """This condition with changed fields of its request."""
        return self.model_copy(update={"request": self.request.model_copy(update=changes)})


class Plan(_Model):
    schema_: Literal["pagelab.study/2"] = Field(default="pagelab.study/2", alias="schema")
    name: str
    question: str = ""
    executions: int
    """Blocks that are analysed: the fixed n, or the last look of a precision stop."""
    seed: int
    warmups: int
    baseline: str
    metric: str
    level: float
    test: Literal["pairs", "rank-sum", "stratified"] = "rank-sum"
    """Plans without one are older than pairs, or of imported data, of which no schedule is known."""
    answer: Literal["each", "set"] = "each"
    """What is tested: every program by itself, or the programs as a set. Plans without one are older than sets."""
    tested: bool = True
    """False: no result could have reached the level, whatever the data, so everything is described without tests
    (:mod:`pagelab.study.answering`). Decided before the first run, and anew where executions are added."""
    precision: Precision | None = None
    minutes: float | None = None
    """Time for the runs, which decides the number of blocks (:mod:`pagelab.study.budget`); None: it is given."""
    blocks: dict[str, int] = Field(default_factory=dict)
    """Blocks of each workload, where they differ; ``executions`` is the most of them."""
    earlier_looks: list[int] = Field(default_factory=list)
    """The executions with which the study had ended, or could be read, before more were added, in order."""
    co_run: bool = False
    """The two conditions of each block run at once, on one processor."""
    together: int = 1
    """So many conditions, in the order of ``conditions``, run next to each other in each block."""
    reboots: Reboots | None = None
    """Each execution, or each block, is in a boot of its own; None: the machine is not restarted."""
    conditions: list[Condition]
    setup: list[Step] = Field(default_factory=list)
    teardown: list[Step] = Field(default_factory=list)
    step_timeout_s: float
    digest: str
    """SHA-256 over study.toml and every file it names (policies, layouts)."""
    inputs: dict[str, str] = Field(default_factory=dict)
    """Path → SHA-256 of those files."""

    def active(self) -> list[Condition]:
        """The conditions that are run."""
        return [condition for condition in self.conditions if condition.left_out is None]

    @property
    def each_boot(self) -> Literal["execution", "block"] | None:
        """What has a boot of its own: each execution or each block; None: the machine is not restarted."""
        return self.reboots.each if self.reboots else None

    def executions_of(self, condition: Condition) -> int:
        """How many executions of the condition are analysed."""
        return 0 if condition.left_out else self.blocks.get(condition.workload, self.executions)


def digest_of(parts: list[bytes]) -> str:
    """SHA-256 over ``parts`` with their lengths, so that moving a byte from one to the next changes it."""
    total = hashlib.sha256()
    for part in parts:
        total.update(len(part).to_bytes(8, "little"))
        total.update(part)
    return total.hexdigest()
