"""Reports: charts, tables, the HTML page and exports of one study. Reads an `Analysis` and its data; runs nothing."""

from pagelab.report.write import Written, write_report

__all__ = ["Written", "write_report"]
