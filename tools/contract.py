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

ROOT = Path(__file__).parents[1]
SCHEMAS = ROOT / "docs/schema"
MODELS = ROOT / "src/pagelab/contract"
DOCUMENTS = {"record-1.json": "record.py", "request-1.json": "request.py"}
HEADER = """\
# Generated from crates/contract by tools.contract; change the Rust types, then: make contract
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
        stale = []
        for schema, model in DOCUMENTS.items():
            _write_model(made / schema, made / model)
            for fresh, kept in ((made / schema, SCHEMAS / schema), (made / model, MODELS / model)):
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


if __name__ == "__main__":
    sys.exit(main())
