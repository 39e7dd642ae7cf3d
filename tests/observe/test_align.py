# SPDX-License-Identifier: Apache-2.0
"""Alignment of whole models: which layer is to blame, and that right models raise no alarm."""

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
from torch_fl.observe.align.judge import Verdict
from torch_fl.observe.target import ModelError


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
