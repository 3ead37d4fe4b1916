"""What is published is what the code says."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from fakes import record

from pagelab.contract import record as contract_record
from pagelab.schemas import documents
from pagelab.study import migrations
from pagelab.study.planning import plan_text

PUBLISHED = Path(__file__).parents[2] / "docs" / "schema"


@pytest.mark.parametrize("name", sorted(documents()))
def test_published_schemas_are_current(name: str) -> None:
    """Regenerate with: python -m pagelab.schemas docs/schema"""
    assert (PUBLISHED / name).read_text() == documents()[name]


def test_a_record_has_exactly_the_published_keys() -> None:
    text = 'name = "s"\n[[policy]]\nname = "p"\n[[workload]]\nname = "w"\ncommand = "true"\n'
    condition = plan_text(text, Path("/s.toml"), Path("/out")).conditions[0]
    written = json.loads(record(condition).model_dump_json(by_alias=True))
    published = json.loads((PUBLISHED / "record-1.json").read_text())
    assert set(written) == set(published["properties"])


def test_a_value_that_may_be_missing_in_a_record_may_be_null_in_its_schema() -> None:
    """Regression: no record with frames was valid by the published schema."""
    published = json.loads((PUBLISHED / "record-1.json").read_text())
    tables = {"Record": published, **published["$defs"]}
    for name, table in tables.items():
        model = getattr(contract_record, name, None)
        for key, field in getattr(model, "model_fields", {}).items():
            if field.default is None and key in table["properties"]:
                assert _allows_null(table["properties"][key]), f"{name}.{key}"


def _allows_null(schema: dict[str, Any]) -> bool:
    kinds = [schema.get("type"), *schema.get("enum", ())]
    return (
        not schema.keys() - {"description", "default"}
        or "null" in (kinds[0] or ())
        or None in kinds[1:]
        or any(_allows_null(one) for one in schema.get("anyOf", ()))
    )


def test_the_whole_chain_makes_what_the_newest_version_has() -> None:
    database = sqlite3.connect(":memory:", isolation_level=None)
    assert migrations.migrate(database) == 0
    assert migrations.version_of(database) == migrations.VERSION
    columns = {row[1] for row in database.execute("PRAGMA table_info(run)")}
    assert {"position", "record_json", "message", "duration_s"} <= columns
    database.close()
