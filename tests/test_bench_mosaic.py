"""``bench/mosaic.py``: campaigns that are done become a table, and go on where they were."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bench import mosaic

from models.planted import DIGITISED, points
from pagelab.model_run.document import Asked, Campaign, LayoutRow, Round, write
from pagelab.models import chosen, judge
from pagelab.models.document import FILE, ModelFile, file_of, fits_of
from pagelab.models.document import write as write_model


def _done(directory: Path, name: str, per_byte: float = 0.0) -> tuple[Campaign, ModelFile]:
    """A campaign of 30 layouts, 12 of them tests; with ``per_byte`` R is a line over bytes in 2M pages."""
    rows = points(30, rule="kink")
    roles = tuple("test" if nth % 2 and nth < 24 else "train" for nth in range(30))
    size = np.arange(30) * (2 << 20)
    r = 1e10 - per_byte * size if per_byte else rows.r
    data = replace(rows, r=r, roles=roles)
    layouts = [
        LayoutRow(name=one, role=role, tiles=[("anon", 0, int(end), 2 << 20)] if end else [])
        for one, role, end in zip(data.layouts, roles, size, strict=True)
    ]
    campaign = Campaign(
        asked=Asked(argv=["x"], cwd="/"),
        workload="x",
        machine={},
        spent_s=90.0,
        rounds=[Round(directory="round-1", repeats=3, layouts=layouts)],
    )
    judged = judge(data, chosen(["basu", "poly1", "poly3", "gp"]), folds=4)
    file = file_of(data, DIGITISED)
    file = file.model_copy(update={"fits": fits_of(data, judged, 1)})
    model = directory / f"{name}.model"
    model.mkdir(parents=True)
    write(model, campaign)
    write_model(model / FILE, file)
    session = {"began": "2026-01-01T12:34:56+00:00", "took_s": 91.0, "load": [1.0, 2.0], "code": 0, "minutes": 1.5}
    (directory / f"{name}.json").write_text(json.dumps(session))
    return campaign, file


def test_every_model_stands_beside_the_papers_and_what_failed_is_told(tmp_path: Path) -> None:
    _, file = _done(tmp_path, "gups-256M")
    _done(tmp_path, "btree-256M")
    failed = {"began": "2026-01-01T12:40:00+00:00", "took_s": 30.0, "load": [1.0, 2.0], "code": 2, "minutes": 1.5}
    (tmp_path / "hash-join-128M.json").write_text(json.dumps(failed))
    (tmp_path / "hash-join-128M.err").write_text("trace\npagelab: give it --minutes 9\n")
    text = mosaic.summary(tmp_path, "")
    assert text is not None
    assert file.fits is not None
    basu = file.fits.named("basu")
    assert basu is not None
    assert basu.test is not None
    assert basu.in_sample is not None
    own = f"{100 * basu.test.maximum:.1f}% ({100 * basu.in_sample.maximum:.1f}%)"
    assert f"| basu | {own} | {own} | 192.0% | – |" in text
    assert "- failed: hash-join-128M: exit code 2 after 0.5 min: pagelab: give it --minutes 9" in text
    assert "- not run: gap-sssp-road-128M, hash-join-512M, gap-bfs-128M" in text
    assert "| gups-256M | 12:34 | 1.5 (1.5) | 1.0–2.0 |" in text
    assert "is nearer than a line over bytes in 2M pages in 2 of 2" in text


def test_a_line_over_bytes_is_without_error_where_run_time_is_one(tmp_path: Path) -> None:
    campaign, file = _done(tmp_path, "gups-256M", per_byte=1.0)
    assert mosaic.by_huge_bytes(campaign, file) == pytest.approx(0, abs=1e-9)
    kinked = mosaic.by_huge_bytes(*_done(tmp_path, "btree-256M"))
    assert kinked is not None
    assert kinked > 0.01


def test_what_is_done_is_not_run_again_and_what_failed_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _done(tmp_path, "gups-256M")
    _done(tmp_path, "btree-256M")
    failed = {"began": "2026-01-01T12:40:00+00:00", "took_s": 30.0, "load": [1.0, 2.0], "code": 2, "minutes": 1.5}
    (tmp_path / "btree-256M.json").write_text(json.dumps(failed))
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "pagelab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    for name in ("gups-256M", "btree-256M"):
        mosaic.run(tmp_path, name, 3.0)
    (line,) = asked.read_text().splitlines()
    assert line.startswith(f"model run --minutes 3 --into {tmp_path / 'btree-256M.model'} -- ")
    assert not (tmp_path / "btree-256M.model").exists()
    assert json.loads((tmp_path / "btree-256M.json").read_text())["code"] == 0
