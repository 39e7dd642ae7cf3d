# SPDX-License-Identifier: Apache-2.0
"""Alignment: what is noise and what is wrong, which layer is to blame, and that right models raise no alarm."""

from __future__ import annotations

import errno
import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_fl
from torch_fl.conformance.case import Case
from torch_fl.conformance.execute import Answer
from torch_fl.observe.align import layers
from torch_fl.observe.align.judge import Verdict, judge, measure, tightest
from torch_fl.observe.align.probes import changed_data, probes, resized
from torch_fl.observe.align.reference import Reference, reference_of, results_of
from torch_fl.observe.target import ModelError

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


# ---- Whole models --------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """A residual block with an activation in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        y += x
        return self.relu(y)


def residual_network() -> tuple[nn.Module, Any]:
    stem = (nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2))
    return nn.Sequential(*stem, Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4)), (
        torch.randn(4, 3, 12, 12),
    )


def encoder() -> tuple[nn.Module, Any]:
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.1, activation="gelu", batch_first=True)
    return nn.TransformerEncoder(layer, 1), (torch.randn(2, 6, 16),)


def dropping_mlp() -> tuple[nn.Module, Any]:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4)), (torch.randn(8, 16),)


class Tagger(nn.Module):
    """A classifier of sequences."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.LSTM(12, 20), nn.Linear(20, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return cast(torch.Tensor, self.head(self.rnn(x)[0][-1]))


def narrow_lstm() -> tuple[nn.Module, Any]:
    return nn.LSTM(12, 5, batch_first=True), (torch.randn(3, 9, 12),)  # gates of 20: no sizes that can be cut alone


def tagger() -> tuple[nn.Module, Any]:
    torch.manual_seed(1)  # derivatives of gates out of their range would cancel
    return Tagger(), (torch.randn(7, 5, 12),)


def lstm() -> tuple[nn.Module, Any]:
    return nn.LSTM(6, 8, 2, dropout=0.2), (torch.randn(4, 3, 6),)


MODELS = [residual_network, encoder, dropping_mlp, lstm, narrow_lstm, tagger]


@pytest.mark.parametrize("make", MODELS, ids=lambda make: make.__name__)
def test_right_models_raise_no_alarm(make: Any) -> None:
    torch.manual_seed(0)
    model, inputs = make()
    report = torch_fl.align(model, inputs, precision=False)
    assert report.ok, report.conclusion()
    assert not report.notes
    assert {layer.phase for layer in report.layers} == {"forward", "backward"}
    assert all(layer.drift is not None and layer.drift < 1e-9 for layer in report.layers if layer.name)
    assert sum(op.probes for op in report.ops) > 30


class Open(nn.Module):
    """Calls that have several right results: signs of vectors, places of equals, sizes that hang on a last bit."""

    def forward(self, x: torch.Tensor) -> tuple[Any, ...]:
        few = (2 * x).round()
        sorts = few.sort(0), few.argsort(), few.kthvalue(5), few.median(1), few.mode(1, keepdim=True)
        tops = few.topk(3), few.topk(4, sorted=False)
        vectors = torch.linalg.eigh(x @ x.t())[1], torch.linalg.svd(x)[0]
        return *sorts, *tops, *vectors, *torch.unique(x * 3 - 2 * x - x, return_counts=True)


def test_interpolation_may_skip_what_has_no_weight() -> None:
    report = torch_fl.align(nn.Upsample(scale_factor=2, mode="bilinear"), torch.randn(4, 4, 2, 2), precision=False)
    assert report.ok, report.conclusion()


def test_of_several_right_results_any_will_do() -> None:
    torch.manual_seed(0)
    report = torch_fl.align(Open(), torch.randn(12, 12), precision=False)
    assert report.ok, report.conclusion()
    assert not report.failure


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


class Losses(nn.Module):
    """Numbers alone, as of several losses that are added up."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 0.5 + x


def test_tensors_without_dimensions_are_judged() -> None:
    report = torch_fl.align(Losses(), torch.tensor(0.3), precision=False)
    assert report.ok, report.conclusion()
    assert [op.op for op in report.ops] == ["aten::sin", "aten::mul.Tensor", "aten::add.Tensor"]


class Pair(NamedTuple):
    index: torch.Tensor
    offset: torch.Tensor


class Odd(nn.Module):
    """Calls that are right, and easily taken for wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.EmbeddingBag(10, 4, mode="mean")
        self.dense, self.block = nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 4))

    def forward(self, pair: Pair) -> torch.Tensor:
        x = self.dense(self.bags(pair.index)) + pair.offset
        x = x * x + x - x
        x = torch.utils.checkpoint.checkpoint(self.block, x, use_reentrant=False)
        wave = torch.fft.rfft(x).abs().sum()
        return F.binary_cross_entropy(x.sigmoid(), torch.full_like(x, 0.3)) + wave


class Speech(nn.Module):
    """Lengths of sequences on the CPU, where a loader leaves them."""

    def __init__(self, named: bool) -> None:
        super().__init__()
        self.head, self.named = nn.Linear(6, 6), named

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        chances, lengths = self.head(x).log_softmax(-1), (torch.tensor([12, 10]), torch.tensor([4, 3]))
        if self.named:
            return torch.ctc_loss(chances, targets, input_lengths=lengths[0], target_lengths=lengths[1], reduction=1)
        return F.ctc_loss(chances, targets, *lengths)


@pytest.mark.parametrize("named", [False, True])
def test_lengths_of_the_cpu_stay_there(named: bool) -> None:
    torch.manual_seed(0)
    report = torch_fl.align(Speech(named), (torch.randn(12, 2, 6), torch.randint(1, 6, (2, 4))), precision=False)
    assert report.ok, report.conclusion()
    assert "aten::_ctc_loss" in [op.op for op in report.ops]  # as without a dispatch mode


def test_what_is_right_and_odd_raises_no_alarm(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(0)
    pair = Pair(torch.randint(0, 10, (3, 5)), torch.randn(3, 4))
    report = torch_fl.align(Odd(), (pair,), precision=False)
    assert report.ok, report.conclusion()
    assert capfd.readouterr() == ("", "")  # warnings from within PyTorch's C++ pass by Python's filters


def test_nothing_compared_is_no_success() -> None:
    class Elsewhere(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.cpu() * 2

    report = torch_fl.align(Elsewhere(), torch.ones(2), precision=False)
    assert not report.ok
    assert "nothing was compared" in report.conclusion()


def test_a_model_that_raises_on_the_chip_alone_is_reported() -> None:
    class Picky(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = x + 1
            if y.device.type != "cpu":
                raise ValueError("not here")
            return y * 2

    report = torch_fl.align(Picky(), torch.ones(2), precision=False, probe=False)
    assert not report.ok
    assert report.conclusion() == "the model raises on the chip: ValueError: not here"
    assert [op.op for op in report.ops] == ["aten::add.Tensor"]


def test_random_numbers_are_the_cpus_in_both_runs() -> None:
    torch.manual_seed(0)
    model, inputs = dropping_mlp()
    report = torch_fl.align(model, inputs, precision=False, probe=False)
    dropout = next(op for op in report.ops if op.op == "aten::native_dropout")
    assert dropout.verdict is Verdict.RANDOM
    assert "distribution" in dropout.reason
    assert max(layer.drift or 0.0 for layer in report.layers) < 1e-12  # no mask differs


def test_layers_and_call_sites_are_named_forward_and_backward() -> None:
    torch.manual_seed(0)
    model, inputs = residual_network()
    report = torch_fl.align(model, inputs, precision=False, probe=False)
    places = {(call.op, call.place.layer, call.place.backward) for call in report.calls}
    assert ("aten::convolution", "4.conv", False) in places
    assert ("aten::convolution_backward", "5.conv", True) in places
    assert ("aten::add_.Tensor", "5", False) in places
    sums = [call for call in report.calls if call.op == "aten::add_.Tensor" and call.place.kind != "BatchNorm2d"]
    sites = {call.place.site for call in sums}
    assert len(sites) == 1
    assert "test_align.py:" in sites.pop()


def test_the_model_and_the_callers_state_stay_as_they_are() -> None:
    torch.manual_seed(0)
    model, inputs = residual_network()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    torch_fl.align(model, inputs, probe=False)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert torch_fl.get_config()["precision"] == "default"


def test_forward_alone() -> None:
    report = torch_fl.align(nn.Linear(4, 3), torch.randn(2, 4), backward=False, precision=False, probe=False)
    assert {op.phase for op in report.ops} == {"forward"}
    assert {layer.phase for layer in report.layers} == {"forward"}


def test_precise_settings_are_compared() -> None:
    torch.manual_seed(0)
    report = torch_fl.align(nn.Linear(64, 32), torch.randn(8, 64), probe=False)
    assert report.precision is not None
    changes = {change.op: change for change in report.precision}
    assert {"aten::addmm", "aten::mm"} <= changes.keys()  # which high precision leaves to the portable kernels
    for change in changes.values():
        assert (change.default_routes, change.high_routes) == (["kernel"], ["portable"])


def test_named_arguments_and_dicts_of_results() -> None:
    class Named(nn.Module):
        def forward(self, x: torch.Tensor, *, scale: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"out": F.gelu(x * scale)}

    x = torch.randn(3, 4, requires_grad=True)
    report = torch_fl.align(Named(), x, kwargs={"scale": torch.ones(4)}, precision=False, probe=False)
    assert [op.op for op in report.ops][:2] == ["aten::mul.Tensor", "aten::gelu"]


def test_layers_under_autocast() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast(x.device.type, torch.bfloat16):
                return self.dense(self.dense.weight.mean() + x)

    report = torch_fl.align(Mixed(), torch.randn(3, 8), precision=False, probe=False)
    assert report.ok, report.conclusion()
    assert all(layer.verdict is not Verdict.UNJUDGED for layer in report.layers)


class InAutocast(nn.Module):
    """Normalised: devices differ in which operators they leave in float32, though not in what is right."""

    def __init__(self, dtype: torch.dtype, *modules: nn.Module) -> None:
        super().__init__()
        self.inner, self.dtype = nn.Sequential(*modules), dtype

    def forward(self, x: torch.Tensor) -> Any:
        with torch.autocast(x.device.type, self.dtype):
            return self.inner(x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_may_leave_other_operators_in_float32_than_on_the_cpu(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    model = InAutocast(dtype, nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 4), nn.LogSoftmax(-1))
    report = torch_fl.align(model, torch.randn(3, 8), precision=False, probe=False)
    assert report.ok, report.conclusion()
    assert {layer.verdict for layer in report.layers} <= {Verdict.EXACT, Verdict.NOISE}


class Made(nn.Module):
    """Tensors made of nothing, and types without much arithmetic."""

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        here = {"device": x.device}
        windows = [
            torch.hann_window(400, **here),
            torch.hamming_window(400, **here),
            torch.blackman_window(400, **here),
        ]
        steps = torch.arange(0, 10, 0.1, **here), torch.linspace(-1, 1, 7, dtype=torch.bfloat16, **here)
        return [*windows, *steps, x.to(torch.float8_e4m3fn).float()]


def test_what_is_made_of_numbers_alone_is_rounded_too() -> None:
    report = torch_fl.align(Made(), torch.randn(3, 4), precision=False)
    assert report.ok, report.conclusion()
    assert {op.op: op.dtype for op in report.ops}["aten::hann_window"] == "float32"


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


def test_heads_that_share_keys_stay_as_many() -> None:
    query, key = torch.randn(1, 4, 4, 8), torch.randn(1, 2, 4, 8)
    case = case_of("aten::_scaled_dot_product_flash_attention_for_cpu", query, key, key)
    assert not [name for name, _ in probes(case) if name.startswith("size")]
    case = case_of("aten::_scaled_dot_product_flash_attention_for_cpu", query, query, query)
    assert "size 3 instead of 4" in [name for name, _ in probes(case)]


class State:
    """What no walk through arguments finds."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, state: State, device: torch.device) -> torch.Tensor:
        scaled: torch.Tensor = self.dense(x) * state.x + torch.arange(8, device=device)
        return scaled


def test_layers_whose_arguments_cannot_be_moved_raise_no_alarm() -> None:
    class Parent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Scaled()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inner: torch.Tensor = self.inner(x, State(2 * x), x.device)
            return inner

    report = torch_fl.align(Parent(), torch.randn(4, 8), precision=False, probe=False)
    assert report.ok, report.conclusion()
    layers = {layer.name: layer for layer in report.layers if layer.phase == "forward"}
    assert layers["inner"].verdict is Verdict.UNJUDGED
    assert "alone, on the chip, it raises RuntimeError: Expected all tensors" in layers["inner"].judgement.reason
    assert layers["inner.dense"].verdict in (Verdict.EXACT, Verdict.NOISE)


def test_outputs_that_nothing_reads_have_no_gradient() -> None:
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cell = nn.LSTMCell(8, 6)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            hidden: torch.Tensor = self.cell(x)[0]
            return hidden

    report = torch_fl.align(Cells(), torch.randn(4, 8), precision=False, probe=False)
    assert report.ok, report.conclusion()


def test_queries_that_see_no_key_are_no_fault() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            padding = torch.tensor([[False, False, True], [True, True, True]], device=x.device)
            attended: torch.Tensor = self.attention(x, x, x, key_padding_mask=padding, need_weights=False)[0]
            return attended

    report = torch_fl.align(Padded(), torch.randn(2, 3, 8), precision=False)
    assert report.ok, report.conclusion()
    assert "aten::_scaled_dot_product_flash_attention_for_cpu" in [op.op for op in report.ops]


def test_modules_inside_vmap_do_not_run_alone() -> None:
    class Mapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mapped: torch.Tensor = torch.vmap(lambda row: self.dense(row).sum())(x)
            return mapped

    report = torch_fl.align(Mapped(), torch.randn(4, 8), precision=False, probe=False)
    assert report.ok, report.conclusion()
    assert {layer.name for layer in report.layers} == {""}


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_modules_of_nested_tensors_are_left_out(layout: torch.layout) -> None:
    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            rows = torch.nested.nested_tensor([x[0], x[1, :2]], layout=layout)
            return x * 2 + self.dense(rows).to_padded_tensor(0.0).sum()

    report = torch_fl.align(Nested(), torch.randn(2, 4, 8), precision=False, probe=False, backward=False)
    assert report.ok or report.failure, report.conclusion()
    assert "dense" not in {layer.name for layer in report.layers}


def test_what_cannot_be_moved_to_the_chip_is_the_users_mistake() -> None:
    class Sparse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.to_dense() * 2

    with pytest.raises(ModelError, match=r"^moving the model and its inputs to fl:0 raised NotImplementedError"):
        torch_fl.align(Sparse(), torch.eye(3).to_sparse())


def test_a_device_that_is_no_chip_is_refused() -> None:
    with pytest.raises(ValueError, match="expected a chip's device such as 'fl:0', found 'cpu'"):
        torch_fl.align(nn.Linear(2, 2), torch.ones(1, 2), device="cpu")


def test_torchscript_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected a torch\.nn\.Module, found TorchScript"):
        torch_fl.align(torch.jit.trace(nn.Linear(2, 2), torch.ones(1, 2)), torch.ones(1, 2))


def test_a_report_is_json_and_one_line(tmp_path: Path) -> None:
    report = torch_fl.align(nn.Linear(4, 3), torch.randn(2, 4), precision=False, probe=False)
    report.to_json(tmp_path / "report.json")
    data = json.loads((tmp_path / "report.json").read_text())
    assert data["ok"] is True
    assert data["first_op"] is None
    assert data["ops"][0]["op"] == "aten::addmm"
    assert set(data["ops"][0]["chip"]) == {"max_abs", "max_rel", "nmse", "ulp", "rtol"}
    assert str(report).startswith("aligned: ")


def test_reports_are_strict_json_and_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = torch_fl.align(nn.Linear(4, 3), torch.randn(2, 4), precision=False, probe=False)
    report.ops[0].chip.nmse, report.ops[0].chip.ulp = math.nan, math.inf

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    json_file, page = tmp_path / "report.json", tmp_path / "report.html"
    report.to_json(json_file)
    report.to_html(page)
    chip = json.loads(json_file.read_text(), parse_constant=refuse)["ops"][0]["chip"]
    assert math.isnan(float(chip["nmse"]))
    assert float(chip["ulp"]) == math.inf

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    for file, write in ((json_file, report.to_json), (page, report.to_html)):
        before = file.read_text()
        report.model = "another"
        with pytest.raises(OSError, match="No space left on device"):
            write(file)
        assert file.read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", "report.html"}


def test_operators_of_other_libraries_are_judged_too() -> None:
    library = torch.library.Library("align_test", "DEF")
    library.define("double(Tensor x) -> Tensor")
    library.impl("double", lambda x: x * 2, "CPU")
    library.impl("double", lambda x: x * 2 + (x > 1), "PrivateUse1")  # wrong above 1

    class Doubled(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.align_test.double(x) + 1

    report = torch_fl.align(Doubled(), torch.tensor([0.5, 2.0]), backward=False, precision=False, probe=False)
    assert report.first_op is not None
    assert report.first_op.op == "align_test::double"
    assert "found 5" in report.first_op.reason
