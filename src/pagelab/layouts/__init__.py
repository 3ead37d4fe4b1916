"""Layouts: which memory of a program gets large pages in the runs that models are fitted to (docs/layouts.md).

>>> from pagelab import layouts
>>> space = layouts.Footprint(tuple(("heap", at << 21) for at in range(8)))
>>> [layout.huge_bytes >> 21 for layout in layouts.growing(space, 5)]
[0, 2, 4, 6, 8]
"""

from pagelab.layouts.anchors import anchors
from pagelab.layouts.campaign import campaign
from pagelab.layouts.footprint import Footprint
from pagelab.layouts.growing import growing
from pagelab.layouts.hot_region import hot_region
from pagelab.layouts.kinds import kinds
from pagelab.layouts.layout import Distinct, Layout, Tile, distinct
from pagelab.layouts.profile import Profile
from pagelab.layouts.random_windows import random_windows
from pagelab.layouts.sliding import sliding
from pagelab.layouts.test_set import judges

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
