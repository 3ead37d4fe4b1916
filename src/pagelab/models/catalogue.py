"""All models by name, and the maximal errors that MOSAIC reports for each."""

from __future__ import annotations

from dataclasses import dataclass

from pagelab.errors import BadInputError

from .base import Model
from .gaussian_process import GaussianProcess
from .linear import Alam, Basu, Gandhi, Pham, Yaniv
from .mosmodel import Mosmodel
from .poly import Poly

OURS = "gp"
IN_CYCLES = ("basu", "pham", "gandhi", "alam")
"""Models whose slopes are in cycles: they are wrong if C has another scale than the machine's cycles."""


@dataclass(frozen=True)
class Published:
    """Maximal errors over all workloads and machines of MOSAIC; None where it gives none."""

    in_sample: float | None
    cross_validated: float | None


PUBLISHED = {
    "basu": Published(1.92, None),
    "gandhi": Published(1.15, None),
    "pham": Published(1.79, None),
    "alam": Published(1.11, None),
    "yaniv": Published(0.25, None),
    "poly1": Published(0.26, 0.364),
    "poly2": Published(None, 0.191),
    "poly3": Published(0.06, 0.200),
    "mosmodel": Published(0.03, 0.043),
    OURS: Published(None, None),
}
"""Sections III and VI and Figure 2 (in-sample, against all 54 layouts), Table 6 (K-fold cross validation)."""


def models(seed: int = 1) -> dict[str, Model]:
    """Returns all models in the paper's order, this package's last; ``seed`` seeds the random draws of two of them."""
    every: list[Model] = [Basu(), Gandhi(), Pham(), Alam(), Yaniv(), Poly(1), Poly(2), Poly(3)]
    every += [Mosmodel(seed=seed), GaussianProcess(seed=seed)]
    return {model.name: model for model in every}


def chosen(names: list[str] | None, seed: int = 1) -> list[Model]:
    """Returns the models of these names, or all for None; `BadInputError` for an unknown name."""
    every = models(seed)
    for name in names or []:
        if name not in every:
            raise BadInputError(f"model {name}: unknown; allowed: {', '.join(every)}")
    return [model for name, model in every.items() if names is None or name in names]
