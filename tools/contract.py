"""``python -m tools.contract [--check]``: what the launcher and the package tell each other, as schemas and models.

The Rust types in ``crates/contract`` are the source. With ``--check`` nothing is written; stale copies are an error.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "docs/schema"
MODELS = ROOT / "src/pagelab/contract"
DOCUMENTS = {"record-1.json": "record.py", "request-1.json": "request.py"}
REQUEST = "request-1.json"
SETTINGS = "settings.py"
STRATEGIES = "strategies.py"
HEADER = """\
# Generated from crates/contract and crates/abi by tools.contract; change the Rust types, then: make contract
# mypy: disable-error-code="assignment"
"""
LITERALS = (
    "flush",
    "mode",
    "preload",
    "region",
    "rights",
    "scheduler",
    "schema",
    "severity",
    "state",
    "status",
    "via",
)
"""Fields whose few values are written as literals; other lists of names become enums."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        _write_schemas(made)
        for schema, model in DOCUMENTS.items():
            _write_model(made / schema, made / model)
        _write_settings(made / REQUEST, made / SETTINGS)
        _write_strategies(made / "strategies.json", made / STRATEGIES)
        copies = {made / schema: SCHEMAS / schema for schema in DOCUMENTS}
        copies |= {made / model: MODELS / model for model in (*DOCUMENTS.values(), SETTINGS, STRATEGIES)}
        stale = []
        for fresh, kept in copies.items():
            if not kept.exists() or fresh.read_text() != kept.read_text():
                stale.append(kept)
            if not check:
                kept.write_text(fresh.read_text())
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        print(f"not as crates/contract has it: {names}; run: make contract", file=sys.stderr)
        return 1
    return 0


def _write_schemas(directory: Path) -> None:
    program = ["cargo", "run", "--quiet", "--locked", "--package", "pagelab-contract", "--features", "schema"]
    subprocess.run([*program, "--", str(directory)], cwd=ROOT, check=True)


def _write_model(schema: Path, to: Path) -> None:
    generator = Path(sysconfig.get_path("scripts")) / "datamodel-codegen"
    options = [
        *("--input", str(schema), "--input-file-type", "jsonschema", "--output", str(to)),
        *("--output-model-type", "pydantic_v2.BaseModel", "--base-class", "pagelab.contract.base.Model"),
        *("--target-python-version", "3.11", "--use-standard-collections", "--use-union-operator", "--use-annotated"),
        *("--use-specialized-enum", "--capitalise-enum-members", "--enum-field-as-literal", "none"),
        *("--enum-field-as-literal-map", json.dumps(dict.fromkeys(LITERALS, "literal"))),
        *("--use-schema-description", "--use-field-description", "--use-attribute-docstrings"),
        *("--strict-nullable", "--collapse-root-models", "--disable-timestamp"),
        *("--formatters", "ruff-format", "--custom-file-header", HEADER),
    ]
    subprocess.run([str(generator), *options], cwd=ROOT, check=True)


def _write_settings(schema: Path, to: Path) -> None:
    """Writes the fields with ``x-setting`` as a table without pydantic, which every command reads for its flags."""
    rows = []
    for field, described in json.loads(schema.read_text())["properties"].items():
        if "x-setting" in described:
            facts = {"field": field, **_form(field, described), **described["x-setting"]}
            shown = (f"{key}={tuple(value) if isinstance(value, list) else value!r}" for key, value in facts.items())
            rows.append(f"RunSetting({', '.join(shown)}),")
    title = "The settings of a run that people choose, as the request has them."
    _write_table(to, title, "RunSetting", "RUN_SETTINGS", rows)


def _write_strategies(table: Path, to: Path) -> None:
    rows = []
    for one in json.loads(table.read_text()):
        facts = {**one, "parameters": tuple(map(tuple, one["parameters"]))}
        rows.append(f"Strategy({', '.join(f'{key}={value!r}' for key, value in facts.items())}),")
    title = "The strategies that place frames, as the table of the plan has them."
    _write_table(to, title, "Strategy", "STRATEGIES", rows)


def _write_table(to: Path, title: str, row: str, name: str, rows: list[str]) -> None:
    text = [
        HEADER.splitlines()[0] + "\n",
        f'"""{title}"""\n',
        "from __future__ import annotations\n",
        f"from pagelab.contract.rows import {row}\n",
        f"{name} = (",
        *rows,
        ")",
    ]
    command = [str(Path(sysconfig.get_path("scripts")) / "ruff"), "format", "-", "--stdin-filename", to.name]
    done = subprocess.run(command, input="\n".join(text), capture_output=True, text=True, cwd=ROOT, check=True)
    to.write_text(done.stdout)


def _form(field: str, described: dict[str, Any]) -> dict[str, Any]:
    """The kind of a setting, by its unit or the JSON type of its field, and its words where it is a choice."""
    choices = [described, *described.get("anyOf", [])]
    words = next((tuple(one["enum"]) for one in choices if "enum" in one), None)
    if words is not None:
        default = described.get("default")
        return {"kind": "words", "words": words, **({} if default is None else {"default": default})}
    if field.endswith("_bytes"):
        return {"kind": "size"}
    kind = described["type"][0] if isinstance(described["type"], list) else described["type"]
    found = {"boolean": "switch", "integer": "number", "number": "seconds", "array": "cpus", "string": "text"}[kind]
    return {"kind": found, **({"words": ("on", "off")} if found == "switch" else {})}


if __name__ == "__main__":
    sys.exit(main())
