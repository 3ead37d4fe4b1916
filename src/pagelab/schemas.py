"""Generates the published schemas in docs/schema: ``python -m pagelab.schemas docs/schema``.

``make contract`` writes those of records and requests.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from pydantic import BaseModel

from .advise.document import AdviceDocument
from .advise.live import LiveAdvice
from .analysis.compare_document import CompareDocument
from .analysis.try_document import TryDocument
from .model_run.document import Campaign
from .model_run.kinds_document import KindsDocument
from .model_run.ranging import RangeDocument
from .model_run.wrong_simulator import SimulatorSensitivity
from .models.answer import ModelReport
from .models.document import ModelFile
from .models.over_workloads import SetReport
from .models.prediction import Prediction
from .models.sensitivity import Sensitivity
from .simulate.sweeping.spec import RawSweep
from .study import migrations
from .study.imported import ImportedRun
from .study.plan import Plan
from .study.spec import RawStudy

JSON_SCHEMAS: dict[str, type[BaseModel]] = {
    "imported-1.json": ImportedRun,
    "study-2.json": Plan,
    "study-toml-1.json": RawStudy,
    "compare-1.json": CompareDocument,
    "try-1.json": TryDocument,
    "advice-1.json": AdviceDocument,
    "advice-live-1.json": LiveAdvice,
    "sweep-toml-1.json": RawSweep,
    "model-1.json": ModelFile,
    "model-report-1.json": ModelReport,
    "model-set-1.json": SetReport,
    "campaign-1.json": Campaign,
    "model-kinds-1.json": KindsDocument,
    "model-range-1.json": RangeDocument,
    "model-sensitivity-1.json": Sensitivity,
    "simulator-sensitivity-1.json": SimulatorSensitivity,
    "prediction-1.json": Prediction,
}
"""Name of each schema's file → the pydantic model that it is made from."""

_STORE_HEAD = """\
# The store

`DIR/study.db` is one SQLite database (WAL, `synchronous = FULL`). Generated from `src/pagelab/study/migrations.py`;
this is version {version}. A store of an older version is brought up to date when it is written, one transaction a step;
readers migrate a copy in memory and leave the file alone. A store of a newer version is refused untouched.

One finished run is one transaction: its row in `run`, its `measurement` rows, the outcomes of its set-up and tear-down
in `step`, and the end of its `attempt`. An attempt without an outcome is a run in progress, or one that was killed.

`run.record_json` holds [pagelab.record/1](record-1.json), or [pagelab.imported/1](imported-1.json) for what was
measured elsewhere. `meta` holds `store_version`, `plan` ([pagelab.study/2](study-2.json)), `spec` (study.toml as it was
run), `digest`, `schedule_algorithm`, `created_at`, `source`, `programs` (path → SHA-256 of what is run), `machine`,
and `origin` for imported studies.
"""


def json_schema(model: type[BaseModel]) -> str:
    """The model's JSON Schema (draft 2020-12) as JSON text, for documents as they are written."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
    return json.dumps(schema, indent=2) + "\n"


def store_document() -> str:
    """The store's tables as Markdown, one section per version."""
    parts = [_STORE_HEAD.format(version=migrations.VERSION)]
    for number, sql in enumerate(migrations.CHAIN, start=1):
        title = "Version 1" if number == 1 else f"Version {number} adds"
        parts.append(f"\n## {title}\n\n```sql\n{sql.strip()}\n```\n")
    return "".join(parts)


def documents() -> dict[str, str]:
    """File name → content of everything in docs/schema."""
    return {**{name: json_schema(model) for name, model in JSON_SCHEMAS.items()}, "store.md": store_document()}


def main() -> None:
    directory = Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in documents().items():
        (directory / name).write_text(re.sub(r"[ \t]+\n", "\n", content), encoding="utf-8")


if __name__ == "__main__":
    main()
