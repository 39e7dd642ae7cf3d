# SPDX-License-Identifier: Apache-2.0
"""Alignment of single calls: what is noise and what is wrong, and the probes."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import torch_fl
from torch_fl.conformance.case import Case
from torch_fl.conformance.execute import Answer
from torch_fl.observe.align import layers
from torch_fl.observe.align.judge import Verdict, judge, measure, tightest
from torch_fl.observe.align.probes import changed_data, probes, resized
from torch_fl.observe.align.reference import Reference, reference_of, results_of

OPS = torch.ops.aten


def case_of(op: str, *args: Any, named: dict[str, Any] | None = None) -> Case:
    from torch_fl.observe.align.capture import case_of

    return case_of(op, (args, named or {}))


def verdict(case: Case, found: torch.Tensor) -> Verdict:
    reference = reference_of(case)
    assert reference is not None
    return judge({"output 0": found}, reference).verdict


# ---- Noise and wrong results ---------------------------------------------------------------------------------------


def test_another_order_of_a_long_sum_is_noise() -> None:
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0)) + 0.3
    other = x.flip(0).numpy().cumsum(dtype="float32")[-1]  # one after the other: the worst of orders
    assert verdict(case_of("aten::sum", x), torch.tensor(other)) is Verdict.NOISE
    assert abs(other - float(x.double().sum())) > 1e-6 * abs(other)  # which a fixed tight tolerance would refuse


def test_a_term_too_few_is_no_noise() -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0)) + 1
    assert verdict(case_of("aten::sum", x), x[:-1].sum()).bad


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_in_a_narrow_type_are_told_from_sums_in_float32(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(16, 256, generator=generator).to(dtype) for _ in range(2))
    case = case_of("aten::mm", a, b.t())
    wide = (a.float() @ b.t().float()).to(dtype)
    narrow = torch.zeros(16, 16, dtype=dtype)
    for k in range(256):
        narrow = narrow + a[:, k : k + 1] * b[:, k]
    assert not verdict(case, wide).bad
    assert verdict(case, narrow).bad


def test_cancellation_is_excused_and_the_same_error_without_it_is_not() -> None:
    close, far = torch.tensor([[1e4, -1e4 + 1e-2]]), torch.tensor([[1e-2, 0.0]])
    ones = torch.ones(2, 1)
    off = torch.tensor([[1e-2 + 2e-4]])
    assert not verdict(case_of("aten::mm", close, ones), off).bad
    assert verdict(case_of("aten::mm", far, ones), off).bad


def test_casts_and_selections_must_be_exact() -> None:
    x = torch.randn(100, generator=torch.Generator().manual_seed(0))
    truncated = (x.view(torch.int32) & -65536).view(torch.float32).bfloat16()
    case = Case("aten::_to_copy", (x,), {"dtype": torch.bfloat16}, exact=True)
    assert verdict(case, x.bfloat16()) is Verdict.EXACT
    assert verdict(case, truncated) is Verdict.WRONG
    assert verdict(case_of("aten::relu", x), x.relu() + 1e-7).bad


def test_nan_must_be_where_it_belongs() -> None:
    x = torch.tensor([1.0, float("nan"), -1.0])
    assert verdict(case_of("aten::exp", x), x.exp()) is Verdict.EXACT
    assert verdict(case_of("aten::exp", x), x.exp().nan_to_num(0.0)) is Verdict.WRONG
    assert verdict(case_of("aten::exp", x), x.exp() * float("nan")) is Verdict.WRONG


def test_another_type_or_shape_is_wrong() -> None:
    x = torch.ones(3)
    assert verdict(case_of("aten::exp", x), x.exp().double()) is Verdict.WRONG
    assert verdict(case_of("aten::exp", x), x.exp()[:2]) is Verdict.WRONG


def test_the_accuracy_is_that_of_the_worst_element() -> None:
    exact = torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)
    found = exact.float() + torch.tensor([0.0, 0.0, 2.0**-21])
    accuracy = measure(found, exact)
    assert accuracy.max_abs == 2.0**-21
    assert accuracy.max_rel == pytest.approx(2.0**-23)
    assert accuracy.ulp == 1.0
    assert accuracy.nmse == pytest.approx(2.0**-42 / 21)
    assert accuracy.rtol == 1e-7


def test_tolerances_are_tightened_until_one_breaks() -> None:
    assert [tightest(needed) for needed in (2e-3, 1e-3, 5e-4, 2e-4, 2e-7)] == [None, 1e-3, 1e-3, 3e-4, 3e-7]


@pytest.mark.parametrize(("error", "bad"), [(1e-9, False), (1e-6, True)])
def test_a_gradient_that_cancels_to_zero_may_be_as_far_off_as_rounding_moves_it(error: float, bad: bool) -> None:
    zero = torch.zeros(3)
    wide = {"grad of bias": zero.double()}
    reference = Reference({"grad of bias": zero}, wide, {"grad of bias": torch.full((3,), 1e-9)})
    assert judge({"grad of bias": zero + error}, reference, whole=True).verdict.bad is bad


def test_layers_are_measured_by_what_rounding_does(monkeypatch: pytest.MonkeyPatch) -> None:
    spreads: list[layers.Spread] = []
    real = layers._judge
    monkeypatch.setattr(layers, "_judge", lambda *of: spreads.append(of[-1]) or real(*of))
    torch_fl.align(nn.Linear(4, 3), torch.randn(2, 4), precision=False, probe=False)
    assert [set(one.most) for one in spreads] == [{"output 0", "grad of input 0", "grad of weight", "grad of bias"}] * 2


def test_what_cancels_to_nothing_has_no_relative_error() -> None:
    """The gradient of a bias in front of a normalisation is zero, and what rounding leaves of it is no accuracy."""
    signs = torch.tensor([1.0, -1.0]).repeat(500)
    grads = torch.rand(500, generator=torch.Generator().manual_seed(0)).repeat_interleave(2) * signs + 1e-9
    case = case_of("aten::sum", grads)
    reference = reference_of(case)
    assert reference is not None
    found = judge({"output 0": reference.expected["output 0"] + 1e-6}, reference)
    assert found.verdict is Verdict.NOISE
    assert found.chip.max_abs > 0
    assert (found.chip.max_rel, found.chip.nmse, found.chip.ulp, found.chip.rtol) == (0, 0, 0, 0)
    wrong = judge({"output 0": torch.tensor(3.0)}, reference)
    assert wrong.verdict is Verdict.WRONG
    assert wrong.chip.nmse > 1


def test_rounding_moves_what_operators_work_out_and_nothing_else() -> None:
    x = torch.ones(64, dtype=torch.float64)
    with layers.Rounding(2.0**-8, seed=0):
        copies = [x.clone(), x.view(8, 8), torch.cat([x]), x.unsqueeze(0), torch.ops.aten._unsafe_view(x, [64])]
        worked_out = [x + 1, x.clone().mul_(2), torch.add(x, 1, out=torch.empty_like(x))]
        count = torch.arange(3) + 1
    assert all(bool((tensor == 1).all()) for tensor in (x, *copies))
    for tensor in worked_out:
        assert set(tensor.tolist()) == {2 + 2.0**-7, 2 - 2.0**-7}
    assert count.tolist() == [1, 2, 3]


@pytest.mark.parametrize(("error", "bad"), [(0.5, False), (50.0, True)])
def test_what_rounding_seldom_does_to_a_layer_is_looked_for(error: float, bad: bool) -> None:
    wide = {"output 0": torch.ones(8, dtype=torch.float64)}
    runs: list[int] = []

    def moved(seed: int) -> dict[str, torch.Tensor]:
        runs.append(seed)
        change = torch.zeros(8, dtype=torch.float64)
        change[3] = 0.5 if seed == 6 else 1e-9  # as of a sign that turned
        return {"output 0": wide["output 0"] + change}

    expected = {"output 0": torch.ones(8)}
    spread = layers.Spread(moved, wide)
    assert not layers._judge(["output 0"], expected, expected, wide, spread).verdict.bad
    assert runs == [0]
    found = {"output 0": torch.ones(8)}
    found["output 0"][3] += error
    assert layers._judge(["output 0"], found, expected, wide, spread).verdict.bad is bad
    assert runs == list(range(9))


@pytest.mark.parametrize("indices", [[0, 1, 3], [0, 0, 2], [0, 1, 7]], ids=str)
def test_wrong_indices_of_right_values_are_wrong(indices: list[int]) -> None:
    x = torch.tensor([1.0, 1.0, 2.0, 3.0])
    case = case_of("aten::topk", x, 3, 0, False)
    expected = reference_of(case)
    assert expected is not None
    values = torch.tensor([1.0, 1.0, 2.0])
    right = Answer([values, torch.tensor([1, 0, 2])], case.args, {})
    assert judge(results_of(case, right), expected).verdict is Verdict.EXACT
    wrong = Answer([values, torch.tensor(indices)], case.args, {})
    assert judge(results_of(case, wrong), expected).verdict is Verdict.WRONG


def test_a_window_that_is_wrong_is_no_rounding() -> None:
    reference = reference_of(case_of("aten::hann_window", 16))
    assert reference is not None
    assert judge({"output 0": torch.hann_window(16, periodic=False)}, reference).verdict is Verdict.WRONG


@pytest.mark.parametrize("kind", [torch.int32, torch.int16, torch.int64])
def test_casts_that_c_leaves_open_are_not_judged(kind: torch.dtype) -> None:
    source = torch.tensor([math.nan, math.inf, 1e30, -2.5])
    for case in (
        case_of("aten::_to_copy", source, named={"dtype": kind}),
        case_of("aten::copy_", torch.zeros(4, dtype=kind), source),
    ):
        reference = reference_of(case)
        assert reference is not None
        name = next(iter(reference.expected))
        for last, verdict in ((-2, Verdict.EXACT), (-3, Verdict.WRONG)):
            assert judge({name: torch.tensor([1, 2, 3, last], dtype=kind)}, reference).verdict is verdict


def test_what_is_worked_out_need_not_be_equal_to_the_bit() -> None:
    for case, exact in (
        (case_of("aten::abs", torch.ones(2)), True),
        (case_of("aten::abs", torch.ones(2, dtype=torch.complex64)), False),
        (case_of("aten::arange.start_step", 0, 10, 2), True),
        (case_of("aten::arange.start_step", 0.0, 10.0, 2.0), True),
        (case_of("aten::arange.start_step", 0, 10, 0.1), False),
    ):
        assert case.exact is exact, case


# ---- Probes --------------------------------------------------------------------------------------------------------


def test_a_size_is_changed_everywhere() -> None:
    case = case_of("aten::native_layer_norm", torch.randn(3, 8), [8], torch.ones(8), torch.zeros(8), 1e-5)
    smaller = resized(case, 8, 7)
    assert [list(t.shape) for t in (smaller.args[0], *smaller.args[2:4])] == [[3, 7], [7], [7]]
    assert smaller.args[1] == [7]


def test_indices_never_leave_what_was_cut() -> None:
    image = torch.randn(1, 1, 8, 8)
    out, indices = OPS.max_pool2d_with_indices(image, [2, 2], [2, 2])
    case = case_of("aten::max_pool2d_with_indices_backward", out, image, [2, 2], [2, 2], [0, 0], [1, 1], False, indices)
    assert not [name for name, _ in probes(case) if name.startswith("size")]


@pytest.mark.parametrize(("shape", "wanted"), [((3, 8), [[3, 3]]), ((2, 3, 8), [[2, 3, 3]]), ((8,), []), ((8, 8), [])])
def test_two_dimensions_are_made_equal(shape: tuple[int, ...], wanted: list[list[int]]) -> None:
    made = [case for name, case in probes(case_of("aten::_softmax", torch.randn(shape), -1, False)) if "equal" in name]
    assert [list(case.args[0].shape) for case in made] == wanted


@pytest.mark.parametrize("rows", [3, 20])
def test_sizes_of_what_a_forward_call_saved_follow_the_gradient(rows: int) -> None:
    gradient, workspace = torch.randn(rows, 5), torch.randn(rows, 20)
    case = case_of("aten::_thnn_fused_lstm_cell_backward_impl", *[gradient] * 4, workspace, True)
    assert [name for name, _ in probes(case) if name.startswith("size")] == ["size 4 instead of 5"]


def test_arguments_that_must_agree_stay_as_they_are() -> None:
    case = case_of("aten::upsample_nearest2d", torch.randn(2, 2, 3, 9), [9, 27], 3.0, 3.0)
    assert not [name for name, _ in probes(case) if name.startswith("size")]
    gradient, x = torch.randn(5), torch.randn(5)
    case = case_of("aten::log_sigmoid_backward", gradient, x, torch.exp(-x.abs()))
    changed = changed_data(case)
    assert changed is not None
    for probe in (changed, *(probe for name, probe in probes(case) if name.endswith("values"))):
        assert not torch.equal(probe.args[0], gradient)
        assert all(torch.equal(a, b) for a, b in zip(probe.args[1:], case.args[1:], strict=True))


def test_every_kind_of_probe_is_made() -> None:
    names = {name for name, _ in probes(case_of("aten::add.Tensor", torch.randn(4, 6), torch.randn(4, 6)))}
    wanted = {"NaN in tensor 0", "infinity in tensor 1", "large values", "size 5 instead of 6"}
    assert wanted | {"strided arguments", "transposed arguments", "the in-place form", "an out= argument"} <= names


def test_what_a_forward_call_saved_keeps_its_range() -> None:
    gradient, result = torch.randn(5), torch.rand(5)
    large = dict(probes(case_of("aten::tanh_backward", gradient, result)))["large values"]
    assert torch.equal(large.args[0], 64 * gradient)
    assert torch.equal(large.args[1], result)
    large = dict(probes(case_of("aten::mul.Tensor", gradient, result)))["large values"]
    assert torch.equal(large.args[1], 64 * result)


def test_heads_that_share_keys_stay_as_many() -> None:
    query, key = torch.randn(1, 4, 4, 8), torch.randn(1, 2, 4, 8)
    case = case_of("aten::_scaled_dot_product_flash_attention_for_cpu", query, key, key)
    assert not [name for name, _ in probes(case) if name.startswith("size")]
    case = case_of("aten::_scaled_dot_product_flash_attention_for_cpu", query, query, query)
    assert "size 3 instead of 4" in [name for name, _ in probes(case)]
