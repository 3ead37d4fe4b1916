"""Models of several workloads side by side, against the definitions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from models.planted import DIGITISED, points
from models.test_commands import pagelab
from pagelab.errors import BadInputError
from pagelab.models import chosen, judge
from pagelab.models.document import ModelFile, file_of, fits_of
from pagelab.models.over_workloads import Fitted, named, over_workloads, report_over, tables, verdict

MODELS = ["basu", "yaniv", "poly1", "poly3"]


def fitted(rule: str, models: list[str] = MODELS, **how: object) -> ModelFile:
    data = points(20, noise=0.01, rule=rule, **how)
    return file_of(data, DIGITISED).model_copy(update={"fits": fits_of(data, judge(data, chosen(models), folds=4), 1)})


@pytest.fixture(scope="module")
def found() -> list[Fitted]:
    return named([(Path(f"{rule}.model"), fitted(rule)) for rule in ("line", "cubic", "kink")])


def test_the_largest_and_the_typical_error_are_those_of_the_definitions(found: list[Fitted]) -> None:
    for name in MODELS:
        judged = []
        for one in found:
            fit = one.fits.named(name)
            assert fit is not None
            errors = fit.left_out or fit.in_sample
            assert errors is not None
            judged.append(errors)
            assert errors.maximum == max(abs(value) for value in errors.relative.values())
        over = over_workloads(found, name)
        assert over.maximum == max(one.maximum for one in judged)
        assert over.worst == found[int(np.argmax([one.maximum for one in judged]))].name
        assert over.geometric_mean == pytest.approx(np.prod([one.geometric_mean for one in judged]) ** (1 / 3))


def test_the_verdict_names_the_best_and_its_worst_workload(found: list[Fitted]) -> None:
    best = min((over_workloads(found, name) for name in MODELS), key=lambda one: one.maximum)
    assert verdict(found).startswith(f"the run times of 3 workloads are predicted within {100 * best.maximum:.1f}% by ")
    assert f"(worst: {best.worst}; " in verdict(found)


def test_a_model_that_was_not_fitted_to_one_of_them_is_compared_where_it_was(found: list[Fitted]) -> None:
    less = Fitted("less", *_of(fitted("line", ["poly1"])))
    assert over_workloads([*found, less], "yaniv").workloads == 3
    maximal, _ = tables([*found, less])
    row = next(row for row in maximal.rows if row[0] == "yaniv")
    assert row[maximal.columns.index("less")] == "–"
    # Of poly1 alone every workload has an error, so that no other model can be the best of all.
    assert " by poly1 " in verdict([*found, less])


def _of(file: ModelFile) -> tuple[ModelFile, object]:
    return file, file.fits


def test_two_files_of_one_workload_are_told_apart_by_their_paths() -> None:
    files = [(Path(f"{machine}.model"), fitted("line", ["poly1"])) for machine in ("here", "there")]
    assert [one.name for one in named(files)] == ["line (here.model)", "line (there.model)"]
    assert list(report_over(named(files)).workloads) == ["line (here.model)", "line (there.model)"]
    with pytest.raises(BadInputError, match="beside itself"):
        named([files[0], files[0]])


@pytest.mark.by_turns(4)
def test_the_command_reports_several_files_as_text_data_and_page(tmp_path: Path) -> None:
    for rule in ("line", "kink"):
        (tmp_path / f"{rule}.model").write_text(fitted(rule).model_dump_json(by_alias=True))
    said = pagelab(tmp_path, "model", "report", "line.model", "kink.model", "--out", "page").stdout
    assert "Maximal relative errors by workload:" in said
    assert "report: " in said
    data = json.loads(pagelab(tmp_path, "model", "report", "line.model", "kink.model", "--json").stdout)
    assert data["schema"] == "pagelab.model-set/1"
    assert set(data["workloads"]) == {"line", "kink"}
    assert json.loads((tmp_path / "page/report.json").read_text()) == data
    (tmp_path / "new.model").write_text(file_of(points(20), DIGITISED).model_dump_json(by_alias=True))
    error = pagelab(tmp_path, "model", "report", "line.model", "new.model", code=2).stderr
    assert "nothing was fitted yet; run: pagelab model fit new.model" in error
