"""An invented machine for ``probe_colours``: pages, a hidden cache index, and noisy latencies that follow from both."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pagelab.machine.colours.model import Chase, Sample

MACHINE = {
    "caches": [
        {"level": 1, "kind": "data", "size_bytes": 32 << 10, "ways": 8, "colours": 1},
        {"level": 2, "kind": "unified", "size_bytes": 1 << 20, "ways": 8, "colours": 32},
        {"level": 3, "kind": "unified", "size_bytes": 8 << 20, "ways": 16, "colours": 128},
    ]
}
HIT_NS, MISS_NS = 4.0, 12.0


def scattered(frame: int) -> int:
    """The frame of the host that backs the guest's: no function of its bits that algebra could find."""
    return random.Random(frame).getrandbits(22)


@dataclass
class FakeCache:
    """Measures as ``colour-chase`` does. ``index`` takes a frame number and the cache's nominal number of colours."""

    index: Callable[[int, int], int]
    finds_conflicts: bool = True
    noise: float = 0.02
    """Standard deviation of a sample's logarithm."""
    spikes: float = 0.05
    """Share of samples that something disturbs."""
    mistaken: float = 0.0
    """Share of conflicting pages that do not conflict."""
    seed: int = 1
    calls: list[dict[str, str]] = field(default_factory=list)

    def __call__(self, asked: Sequence[str]) -> Chase:
        named = dict(word.removeprefix("--").split("=") for word in asked)
        self.calls.append(named)
        number = {name: int(text) for name, text in named.items() if text.isdigit()}
        masks = [int(text, 16) for text in named.get("masks", "").split(",") if text]
        rng = random.Random(f"{self.seed} {sorted(named.items())}")
        pool = rng.sample(range(1 << 22), number["pool-pages"])
        nominal = 32 if masks else number["colours"]

        def told(frame: int) -> int:
            if not masks:
                return frame % number["colours"]
            return sum(((mask & frame).bit_count() & 1) << bit for bit, mask in enumerate(masks))

        candidates = rng.sample(pool, number["candidates"])
        classes = self._classes(candidates, nominal, rng) if number["classes"] and self.finds_conflicts else []
        samples = [
            Sample(round=turn, chain_pages=int(pages), kind=kind, ns_per_load=self._time(chain, nominal, number, rng))
            for turn in range(number["rounds"])
            for pages in named["chain-pages"].split(",")
            for kind, chain in self._chains(pool, told, number, classes, int(pages), rng)
        ]
        return Chase(
            colours=number["colours"], ways=number["ways"], inner_colours=number["inner-colours"],
            inner_ways=number["inner-ways"], masks=masks, rounds=number["rounds"], seed=number["seed"],
            pool_pages=len(pool), candidates=candidates, near_ns=300.0, far_ns=800.0, attempts=3, classes=classes,
            samples=samples,
        )  # fmt: skip

    def _classes(self, candidates: list[int], colours: int, rng: random.Random) -> list[list[int]]:
        by_index: dict[int, list[int]] = {}
        for frame in candidates:
            by_index.setdefault(self.index(frame, colours), []).append(frame)
        chosen = rng.sample(list(by_index.values()), 3)
        return [[f if rng.random() >= self.mistaken else rng.choice(candidates) for f in one] for one in chosen]

    def _chains(
        self, pool: list[int], told: Callable[[int], int], number: dict[str, int], classes: list[list[int]],
        pages: int, rng: random.Random,
    ) -> list[tuple[str, list[int]]]:  # fmt: skip
        wanted = rng.randrange(number["colours"])
        inner = wanted % number["inner-colours"]
        same: list[int] = []
        spread: list[int] = []
        seen: Counter[int] = Counter()
        share = -(-pages // max(1, number["colours"] // number["inner-colours"]))
        start = rng.randrange(len(pool))
        for frame in (*pool[start:], *pool[:start]):
            colour = told(frame)
            if colour == wanted and len(same) < pages:
                same.append(frame)
            if colour % number["inner-colours"] == inner and len(spread) < pages and seen[colour] < share:
                seen[colour] += 1
                spread.append(frame)
            if len(same) == len(spread) == pages:
                break
        chains = [("same", same), ("spread", spread)]
        large = [one for one in classes if len(one) >= pages]
        if large:
            chains.append(("conflict", rng.sample(rng.choice(large), pages)))
        rng.shuffle(chains)
        return chains

    def _time(self, chain: list[int], colours: int, number: dict[str, int], rng: random.Random) -> float:
        """Pages of sets that hold more than the ways miss (least recently used, in a cycle); the others hit."""
        counts = Counter(self.index(frame, colours) for frame in chain)
        missing = sum(count for count in counts.values() if count > number["ways"]) / len(chain)
        mean = HIT_NS + missing * (MISS_NS - HIT_NS)
        spike = rng.uniform(1.2, 3.0) if rng.random() < self.spikes else 1.0
        return mean * rng.lognormvariate(0, self.noise) * spike
