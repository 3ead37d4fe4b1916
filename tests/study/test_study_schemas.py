"""What is published is what the code says."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest
from fakes import record

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


def test_the_whole_chain_makes_what_the_newest_version_has() -> None:
    database = sqlite3.connect(":memory:", isolation_level=None)
    assert migrations.migrate(database) == 0
    assert migrations.version_of(database) == migrations.VERSION
    columns = {row[1] for row in database.execute("PRAGMA table_info(run)")}
    assert {"position", "record_json", "message", "duration_s"} <= columns
    database.close()
