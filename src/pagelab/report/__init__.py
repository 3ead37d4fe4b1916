"""Makes the report of one study: charts, tables, page, exports. It reads an `Analysis` and data, and runs nothing."""

from pagelab.report.write import Written, write_report

__all__ = ["Written", "write_report"]
