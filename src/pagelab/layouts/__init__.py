"""Layouts: the memory of a program that gets large pages in runs to which models are fitted (docs/layouts.md).

>>> from pagelab import layouts
>>> space = layouts.Footprint(tuple(("heap", at << 21) for at in range(8)))
>>> [layout.huge_bytes >> 21 for layout in layouts.growing(space, 5)]
[0, 2, 4, 6, 8]
"""

from pagelab.layouts.campaign import anchors, campaign, judges, kinds
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.layout import Distinct, Layout, Tile, distinct
from pagelab.layouts.profile import Profile
from pagelab.layouts.windows import growing, hot_region, random_windows, sliding

__all__ = [
    "Distinct",
    "Footprint",
    "Layout",
    "Profile",
    "Tile",
    "anchors",
    "campaign",
    "distinct",
    "growing",
    "hot_region",
    "judges",
    "kinds",
    "random_windows",
    "sliding",
]
