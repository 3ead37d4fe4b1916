"""What a campaign is asked for; it stands in its file, and a campaign goes on only as it began."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

CountsWay = Literal["auto", "measured", "simulated"]
Select = Literal["adaptive", "moselect", "profile", "random"]
EstimatorName = Literal["mean", "median", "low-quantile"]


class Asked(BaseModel):
    """A command, and how its model is made."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    argv: list[str]
    cwd: str
    minutes: float = 60.0
    """For everything: trace, simulations and runs."""
    counts: CountsWay = "auto"
    processor: str | None = None
    """A preset's name or a description's path; None: this machine's preset."""
    caches: bool = False
    references: bool = False
    """Whether the trace keeps every reference, for predictions of processors that need them."""
    select: Select = "adaptive"
    estimator: EstimatorName = "median"
    layouts: int | None = None
    """Training layouts; None: as many as fit the minutes."""
    tests: int = 12
    aim: float = 0.03
    """Maximal relative error at which an adaptive campaign ends, by its own intervals."""
    window: str | None = None
    trace: str | None = None
    """A trace of the same command; None: captured."""
    seed: int = 1
    timeout_s: float | None = None
