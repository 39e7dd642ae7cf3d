# SPDX-License-Identifier: Apache-2.0
"""The parts of the kit that need no chip."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from torch_fl.conformance import report
from torch_fl.conformance.bounds import basic_bound, strict_bound
from torch_fl.conformance.case import Case, map_tensors
from torch_fl.conformance.compare import compare_draws, compare_outputs
from torch_fl.conformance.execute import on_cpu
from torch_fl.conformance.forms import forms_of
from torch_fl.conformance.operators import OPERATORS
from torch_fl.conformance.verdict import Finding, Row, Verdict, summarize

X = torch.linspace(1, 2, 35, dtype=torch.float64).reshape(5, 7)


def judge(found: torch.Tensor, expected: torch.Tensor, **rules: object) -> Finding:
    case = Case("aten::exp", (expected,), **rules)  # type: ignore[arg-type]
    wide = [expected.double()] if expected.is_floating_point() else None
    return compare_outputs(case, [found], [expected], wide)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_verdict_follows_the_size_of_the_error(dtype: torch.dtype) -> None:
    expected = X.to(dtype)
    unit = torch.finfo(dtype).eps / 2
    assert judge(expected, expected).verdict is Verdict.STRICT
    strict = strict_bound(Case("aten::exp", ()), dtype, 0.0)
    between = (strict * basic_bound(dtype, strict)) ** 0.25  # a relative error between the bounds
    assert judge((X * (1 + between)).to(dtype), expected).verdict is Verdict.BASIC
    assert judge((X * 1.25).to(dtype), expected).verdict is Verdict.FAILED
    assert judge((X * (1 + 2 * unit)).to(dtype), expected).verdict is Verdict.STRICT


def test_a_cpu_that_is_itself_inexact_sets_the_measure() -> None:
    exact = X
    cpu, chip = (exact * (1 + 3e-5)).float(), (exact * (1 - 3e-5)).float()
    case = Case("aten::exp", ())
    assert compare_outputs(case, [chip], [cpu], [exact]).verdict is Verdict.STRICT
    assert compare_outputs(case, [chip], [exact.float()], [exact]).verdict is Verdict.BASIC


def test_more_terms_allow_more_error_and_exact_allows_none() -> None:
    expected = X.float()
    found = (X * (1 + 4e-6)).float()
    assert judge(found, expected).verdict is Verdict.BASIC
    assert judge(found, expected, terms=10_000).verdict is Verdict.STRICT
    assert judge(torch.nextafter(expected, expected + 1), expected, exact=True).verdict is Verdict.BASIC


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_infinity_belong_where_the_cpu_has_them(value: float) -> None:
    expected = X.float()
    found = expected.clone()
    found[2, 3] = value
    assert judge(found, expected).verdict is Verdict.FAILED
    assert "first at [2, 3]" in judge(found, expected).reason
    assert judge(found, found.clone()).verdict is Verdict.STRICT
    assert judge(-found, found).verdict is Verdict.FAILED


def test_type_shape_and_integers_are_exact_and_strides_decide_between_strict_and_basic() -> None:
    expected = X.float()
    assert "type" in judge(expected.double(), expected).reason
    assert "shape" in judge(expected[:4], expected).reason
    whole = torch.arange(35).reshape(5, 7)
    wrong = whole.clone()
    wrong[4, 6] += 1
    assert judge(wrong, whole).reason == "1 of 35 differ, first at [4, 6]: expected 34, found 35"
    turned = judge(expected.mT.contiguous().mT, expected)
    assert (turned.verdict, turned.reason) == (Verdict.BASIC, "strides: expected [7, 1], found [1, 5]")


def test_random_numbers_are_compared_by_their_distribution() -> None:
    generator = torch.Generator().manual_seed(1)
    first, second = (torch.randn(10_000, generator=generator) for _ in range(2))
    assert compare_draws([first], [second]).verdict is Verdict.STRICT
    assert compare_draws([first * 1.2], [second]).verdict is Verdict.FAILED
    assert compare_draws([first + 0.1], [second]).verdict is Verdict.FAILED


def test_worst_case_decides_and_other_routes_count_for_nothing() -> None:
    strict, basic = Finding(Verdict.STRICT, route="kernel"), Finding(Verdict.BASIC, "strides", route="kernel")
    host = Finding(Verdict.UNTESTED, "ran on the host: no kernel", route="host")
    assert summarize("op", "float32", "test", [strict, host]).verdict is Verdict.STRICT
    row = summarize("op", "float32", "test", [strict, basic, host])
    assert (row.verdict, row.cases, row.routes) == (Verdict.BASIC, 2, {"kernel": 2, "host": 1})
    row = summarize("op", "float32", "test", [host])
    assert (row.verdict, row.reason) == (Verdict.UNTESTED, "ran on the host: no kernel")


def test_a_case_prints_itself() -> None:
    case = Case("aten::add.Tensor", (torch.zeros(5, 7), torch.zeros(7, 5).mT), {"alpha": 2})
    assert str(case) == "add.Tensor(float32[5, 7], float32[5, 7] strides [1, 5], alpha=2)"


def test_forms_of_a_case_are_its_siblings_and_its_layouts() -> None:
    case = next(OPERATORS["aten::add.Tensor"].cases(0, torch.float32))
    answer = on_cpu(case)
    assert answer is not None
    forms = {form.form: str(form) for form in forms_of(case, answer.outputs)}
    assert set(forms) == {"strided", "transposed", "in-place", "out="}
    assert forms["in-place"].startswith("add_.Tensor(")
    assert forms["out="].startswith("add.out(")
    assert "strides [14, 2]" in forms["strided"]


def test_one_tensor_that_occurs_twice_stays_one() -> None:
    first, (second, third) = map_tensors((X, [X, X.clone()]), torch.clone)
    assert first is second
    assert second is not third


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_every_operator_has_a_case_that_the_cpu_accepts(name: str) -> None:
    operator = OPERATORS[name]
    with torch.no_grad():
        case = next(operator.cases(0, operator.dtypes[0]))
        assert on_cpu(case) is not None, str(case)
        again = next(operator.cases(0, operator.dtypes[0]))
    assert str(case) == str(again)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    row = Row("aten::exp", "float32", "test", Verdict.FAILED, "a | b", nmse=float("inf"))
    device = {"plugin_version": "0.4", "driver_version": "7.3", "name": "Chip", "vendor": "Vendor"}
    library = tmp_path / "libfl_x.so"
    library.write_bytes(b"code")
    made = report.make("x", {"device": device, "plugins": [{"path": str(library)}]}, {"seed": 0}, [row])
    report.write(made, tmp_path / "x.json")
    return tmp_path / "x.json"


def test_a_report_tells_what_ran_and_its_checksum_holds(written: Path) -> None:
    content = report.verify(written)
    assert content["summary"] == {"FAILED": 1}
    assert content["versions"]["torch"] == torch.__version__
    assert content["files"][0]["sha256"] == "5694d08a2e53ffcae0c3103e5ad6f6076abd960eb1f8a56577040bc1028f702b"
    page = written.with_suffix(".md").read_text()
    assert "Signature: ____" in page
    assert json.loads(written.read_text())["sha256"] in page
    assert "a \\| b" in page


@pytest.mark.parametrize("change", ["FAILED", "float32"])
def test_a_report_that_was_changed_is_found_out(written: Path, change: str) -> None:
    written.write_text(written.read_text().replace(change, "STRICT"))
    with pytest.raises(report.BadReport, match="changed after the run"):
        report.verify(written)


def test_what_is_no_report_is_told_so(tmp_path: Path) -> None:
    for text in ("", "[]", "{}", '{"content": {}, "sha256": ""}'):
        (tmp_path / "x.json").write_text(text)
        with pytest.raises(report.BadReport):
            report.verify(tmp_path / "x.json")
