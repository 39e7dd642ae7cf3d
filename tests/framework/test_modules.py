# SPDX-License-Identifier: Apache-2.0
"""Moving modules: Parameters keep their identity, as on stock devices."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from tests.framework.helpers import assert_same, assert_same_grads, needs_two_devices, twin


def test_parameters_keep_identity() -> None:
    """Module.to moves Parameter objects in place, there and back."""
    model = nn.Linear(3, 2)
    weight, bias = model.weight, model.bias
    reference = weakref.ref(weight)
    model.to("fl")
    assert model.weight is weight is reference()
    assert model.bias is bias
    assert weight.device.type == "fl"
    model.cpu()
    assert model.weight is weight
    assert weight.device.type == "cpu"


@needs_two_devices
def test_between_devices() -> None:
    """Identity also holds from one fl device to another."""
    model = nn.Linear(3, 2).to("fl:0")
    weight = model.weight
    model.to("fl:1")
    assert model.weight is weight
    assert weight.device.index == 1


def test_optimizer_built_before_the_move() -> None:
    """An optimizer made while the model was on the CPU trains the model on fl."""
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model.to("fl")
    before = model.weight.detach().clone()
    model(torch.ones(2, 3, device="fl")).sum().backward()
    optimizer.step()
    assert_same(model.weight, (before - 1.0).cpu())


def test_gradients_move_with_parameters() -> None:
    """A gradient that exists goes where its parameter goes."""
    model = nn.Linear(3, 1)
    model(torch.ones(1, 3)).sum().backward()
    model.to("fl")
    assert model.weight.grad.device.type == "fl"
    assert model.weight.grad.tolist() == [[1, 1, 1]]


def test_ties_survive() -> None:
    """Tied parameters stay one object, and the tie holds through a training step."""
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    model[2].weight = model[0].weight
    device_model = twin(model)
    assert device_model[2].weight is device_model[0].weight
    assert len(list(device_model.parameters())) == 1
    x = torch.randn(3, 4)
    model(x).square().sum().backward()
    device_model(x.to("fl")).square().sum().backward()
    assert_same_grads(device_model, model, rtol=1e-4, atol=1e-5)


def test_lazy_modules() -> None:
    """A lazy module moved before its first call initialises on the device."""
    model = nn.LazyLinear(3).to("fl")
    assert model(torch.ones(2, 5, device="fl")).device.type == "fl"
    assert model.weight.shape == (3, 5)
    assert model.weight.device.type == "fl"


def test_construct_on_device() -> None:
    """Modules can be built on the device, by argument, by context and from meta."""
    assert nn.Linear(2, 2, device="fl").weight.device.type == "fl"
    with torch.device("fl"):
        assert nn.Linear(2, 2).weight.device.type == "fl"
    model = nn.Linear(2, 2, device="meta").to_empty(device="fl")
    nn.init.ones_(model.weight)
    assert model.weight.sum().item() == 4


def test_dtype_conversions() -> None:
    """half(), double() and to(dtype) on the device keep identity and values."""
    model = nn.Linear(2, 2).to("fl")
    weight, values = model.weight, model.weight.detach().cpu()
    model.double()
    assert model.weight is weight
    assert_same(weight, values.double())
    model.to(torch.bfloat16)
    assert weight.dtype == torch.bfloat16


def test_data_assignment() -> None:
    """Assigning .data between fl tensors and from the CPU replaces the contents."""
    x = torch.zeros(3, device="fl")
    x.data = torch.ones(3, device="fl")
    assert x.tolist() == [1, 1, 1]
    y = torch.zeros(3)
    y.data = x
    assert y.device.type == "fl"


def test_parameter_list_and_buffers() -> None:
    """Buffers move too, and load_state_dict(assign=True) takes fl tensors over."""
    model = nn.BatchNorm2d(3).to("fl")
    assert model.running_mean.device.type == "fl"
    assert model.num_batches_tracked.device.type == "fl"
    other = nn.BatchNorm2d(3, device="meta")
    other.load_state_dict(model.state_dict(), assign=True)
    assert other.weight.device.type == "fl"
