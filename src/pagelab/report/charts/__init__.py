"""The charts of a report: each is a pure function from an `Analysis` to a Vega-Lite specification, in the look of
`theme`.
"""

from pagelab.report.charts.counters import counter_for, tlb_scatter
from pagelab.report.charts.effects import drawn_limits, forest, is_cut
from pagelab.report.charts.executions import executions
from pagelab.report.charts.factors import impact_factors
from pagelab.report.charts.frames import pages_by_colour
from pagelab.report.charts.misses import time_and_misses
from pagelab.report.charts.placement import bars
from pagelab.report.charts.program_spreads import dumbbells
from pagelab.report.charts.ranks import ranks
from pagelab.report.charts.schedule import drift
from pagelab.report.charts.sets import over_set
from pagelab.report.charts.times import boxplot

__all__ = [
    "bars",
    "boxplot",
    "counter_for",
    "drawn_limits",
    "drift",
    "dumbbells",
    "executions",
    "forest",
    "impact_factors",
    "is_cut",
    "over_set",
    "pages_by_colour",
    "ranks",
    "time_and_misses",
    "tlb_scatter",
]
