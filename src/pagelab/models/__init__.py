"""Runtime models predict run time from the TLB hits, misses and walk cycles of layouts; their errors are measured here.

>>> import numpy as np
>>> from pagelab.models import Points, judge, models
>>> walks = np.linspace(1e9, 9e9, 12)
>>> points = Points.of("planted", r=1e10 + 0.5 * walks, c=walks)
>>> round(judge(points, [models()["poly1"]]).named("poly1").left_out.maximum, 9)
0.0
"""

from .base import Fitted, Model
from .catalogue import OURS, PUBLISHED, chosen, models
from .judgement import Errors, Floor, Judged, Judgement, judge
from .points import Points, PointsWarning

__all__ = [
    "OURS",
    "PUBLISHED",
    "Errors",
    "Fitted",
    "Floor",
    "Judged",
    "Judgement",
    "Model",
    "Points",
    "PointsWarning",
    "chosen",
    "judge",
    "models",
]
