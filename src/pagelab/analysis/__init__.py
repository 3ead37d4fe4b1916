"""Analyses a study's store, in numbers and in words. It reads records only and runs nothing.

>>> from pathlib import Path
>>> from pagelab.analysis import analyse, load
>>> from pagelab.study.store import Store
>>> with Store.open(Path("out"), write=False) as store:  # doctest: +SKIP
...     print(analyse(load(store)).headline)
"""

from pagelab.analysis.build import NothingToAnalyseError, analyse
from pagelab.analysis.data import StudyData, load
from pagelab.analysis.model import Analysis

__all__ = ["Analysis", "NothingToAnalyseError", "StudyData", "analyse", "load"]
