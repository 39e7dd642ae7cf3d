# SPDX-License-Identifier: Apache-2.0
"""Tracing: FakeTensor, make_fx, export and torch.compile with eager backends."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tests.framework.helpers import assert_same, assert_same_grads, twin


def _network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


def test_fake_tensors() -> None:
    """Under FakeTensorMode operators on fl give shapes and the device, and compute nothing."""
    with FakeTensorMode() as mode:
        x = torch.empty(4, 3, device="fl")
        y = (x @ x.T).softmax(-1) + 1
        assert y.shape == (4, 4)
        assert y.device == torch.device("fl", 0)
        z = nn.Conv2d(3, 5, 3, device="fl")(torch.empty(2, 3, 8, 8, device="fl"))
        assert z.shape == (2, 5, 6, 6)
    real = torch.ones(3, device="fl")
    assert mode.from_tensor(real).device == real.device


def test_fake_tensors_open_no_device() -> None:
    """Fake tensors of fl do not initialise the device."""
    from tests.framework.helpers import run_child

    run_child(
        """
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode
        with FakeTensorMode():
            y = torch.empty(4, 3, device="fl") + 1
        assert y.device.type == "fl"
        assert not torch.fl.is_initialized()
        """
    )


def test_make_fx() -> None:
    """make_fx traces on fl, really and symbolically, and the graph runs."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2 + torch.ones(3, device=x.device)).tanh().sum(0)

    x = torch.randn(4, 3, device="fl")
    for mode in ("real", "fake", "symbolic"):
        traced = make_fx(function, tracing_mode=mode)(x)
        assert_same(traced(x), function(x.cpu()))


def test_export() -> None:
    """torch.export captures a model on fl, and the program runs with the same result."""
    model = _network().eval()
    device_model = twin(model)
    x = torch.randn(2, 3, 8, 8)
    program = torch.export.export(device_model, (x.to("fl"),))
    assert_same(program.module()(x.to("fl")), model(x), rtol=1e-4, atol=1e-5)


def test_export_dynamic_batch() -> None:
    """A dynamic batch dimension exports, and other sizes run."""
    model = nn.Linear(3, 2)
    device_model = twin(model)
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(device_model, (torch.randn(4, 3, device="fl"),), dynamic_shapes=({0: batch},))
    x = torch.randn(7, 3)
    assert_same(program.module()(x.to("fl")), model(x))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "aot_eager_decomp_partition"])
def test_compile_inference(backend: str) -> None:
    """torch.compile with an eager backend gives what eager gives."""
    model = _network().eval()
    compiled = torch.compile(twin(model), backend=backend)
    x = torch.randn(2, 3, 8, 8)
    assert_same(compiled(x.to("fl")), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_training(dynamic: bool) -> None:
    """aot_eager trains: loss and gradients agree with the CPU, for several batch sizes."""
    model = _network()
    device_model = twin(model)
    compiled = torch.compile(device_model, backend="aot_eager", dynamic=dynamic)
    for size in (2, 3, 5):
        x, y = torch.randn(size, 3, 8, 8), torch.randint(5, (size,))
        model.zero_grad()
        device_model.zero_grad()
        expected = nn.functional.cross_entropy(model(x), y)
        loss = nn.functional.cross_entropy(compiled(x.to("fl")), y.to("fl"))
        expected.backward()
        loss.backward()
        assert_same(loss, expected, rtol=1e-4, atol=1e-5)
        assert_same_grads(device_model, model, rtol=1e-3, atol=1e-4)
    torch._dynamo.reset()


def test_compile_with_mutation_and_random() -> None:
    """A compiled function may mutate its argument and draw random numbers."""

    @torch.compile(backend="aot_eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return nn.functional.dropout(x, 0.5)

    x = torch.ones(100, device="fl")
    y = function(x)
    assert x.eq(2).all()
    assert set(y.unique().tolist()) <= {0.0, 4.0}


def test_script_and_trace() -> None:
    """TorchScript runs on fl, scripted and traced."""
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU()).to("fl")
    x = torch.randn(2, 3, device="fl")
    assert torch.equal(torch.jit.trace(model, x)(x), model(x))
    assert torch.equal(torch.jit.script(model)(x), model(x))


def test_graph_breaks() -> None:
    """A graph break inside a compiled loop keeps devices and values."""

    @torch.compile(backend="aot_eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        for _ in range(3):
            x = x * 2
            if x.sum().item() > 1e6:
                x = x / 10
        return x

    assert function(torch.ones(3, device="fl")).tolist() == [8, 8, 8]


CONVOLUTIONS = {
    "conv2d": (F.conv2d, (1, 2, 5, 6), (4, 2, 3, 3), torch.channels_last),
    "conv2d grouped": (partial(F.conv2d, groups=2), (2, 4, 5, 6), (4, 2, 3, 3), torch.channels_last),
    "conv_transpose2d": (F.conv_transpose2d, (1, 2, 5, 6), (2, 4, 3, 3), torch.channels_last),
    "conv3d": (F.conv3d, (1, 2, 4, 5, 6), (4, 2, 3, 3, 3), torch.channels_last_3d),
}


@pytest.mark.parametrize("which", ["neither", "input", "weight", "both"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_fake_convolutions_have_the_strides_of_real_ones(name: str, which: str) -> None:
    function, input_shape, weight_shape, layout = CONVOLUTIONS[name]
    x, w = torch.randn(input_shape, device="fl"), torch.randn(weight_shape, device="fl")
    x = x.to(memory_format=layout) if which in ("input", "both") else x
    w = w.to(memory_format=layout) if which in ("weight", "both") else w

    def run(x: torch.Tensor, w: torch.Tensor) -> list[torch.Tensor]:
        x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
        y = function(x, w)
        return [y, *torch.autograd.grad(y, (x, w), torch.ones_like(y))]

    real = run(x, w)
    with FakeTensorMode() as mode:
        fake = run(mode.from_tensor(x), mode.from_tensor(w))
    assert [t.stride() for t in fake] == [t.stride() for t in real]


def test_compiled_code_that_reads_the_strides_of_a_convolution() -> None:
    x = torch.randn(1, 2, 5, 5, device="fl").to(memory_format=torch.channels_last)
    w = torch.randn(3, 2, 3, 3, device="fl")

    def scaled(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w) * F.conv2d(x, w).stride(1)

    def flat(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.conv2d(x, w).permute(0, 2, 3, 1).view(-1)

    for function in (scaled, flat):
        assert_same(torch.compile(function, backend="aot_eager")(x, w), function(x, w).cpu())
