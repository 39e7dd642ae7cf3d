# SPDX-License-Identifier: Apache-2.0
"""Saving, loading and copying."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from tests.framework.helpers import needs_two_devices, run_child


class _Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7, bias=False)
        self.head.weight = self.embed.weight


def _round_trip(value: Any, **options: Any) -> Any:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    buffer.seek(0)
    return torch.load(buffer, **options)


def test_tensor_comes_back_to_its_device() -> None:
    """Without map_location a tensor returns to the device it was saved from."""
    x = torch.randn(3, 4, device="fl")
    y = _round_trip(x, weights_only=True)
    assert y.device == x.device
    assert torch.equal(x, y)


@pytest.mark.parametrize("weights_only", [True, False])
def test_saved_on_fl_loaded_on_cpu_and_back(weights_only: bool) -> None:
    """map_location moves what was saved, in both directions."""
    state = {"a": torch.randn(5, device="fl"), "b": torch.arange(3, device="fl"), "n": 4}
    on_cpu = _round_trip(state, map_location="cpu", weights_only=weights_only)
    assert on_cpu["a"].device.type == "cpu"
    assert torch.equal(on_cpu["a"], state["a"].cpu())
    again = _round_trip(on_cpu, map_location="fl", weights_only=weights_only)
    assert again["b"].device.type == "fl"
    assert torch.equal(again["b"], state["b"])


@needs_two_devices
def test_map_to_another_device() -> None:
    """map_location takes another fl device, a device object or a function."""
    x = torch.randn(4, device="fl:1")
    assert _round_trip(x).device.index == 1
    assert _round_trip(x, map_location="fl:0").device.index == 0
    assert _round_trip(x, map_location=torch.device("fl", 0)).device.index == 0
    assert _round_trip(x, map_location={"fl:1": "fl:0"}).device.index == 0


def test_missing_device_is_explained() -> None:
    """Loading onto a device that does not exist says so."""
    with pytest.raises(RuntimeError, match=r"fl|device"):
        _round_trip(torch.ones(2, device="fl"), map_location="fl:40")


def test_views_keep_sharing() -> None:
    """Two views of one storage still share it after loading."""
    base = torch.arange(6.0, device="fl")
    first, second = _round_trip([base[:3], base[2:]])
    first[2] = 42
    assert second[0].item() == 42


def test_tied_weights_stay_tied() -> None:
    """A tied model keeps its ties through to(), deepcopy, save and load."""
    model = _Tied().to("fl")
    assert model.head.weight is model.embed.weight
    assert copy.deepcopy(model).head.weight.data_ptr() != model.head.weight.data_ptr()
    loaded = _round_trip(model, weights_only=False)
    assert loaded.head.weight is loaded.embed.weight
    state = _round_trip(model.state_dict(), map_location="cpu")
    assert state["head.weight"].data_ptr() == state["embed.weight"].data_ptr()
    fresh = _Tied()
    fresh.load_state_dict(state)
    assert torch.equal(fresh.head.weight, model.head.weight.cpu())


def test_load_state_dict_across_devices() -> None:
    """load_state_dict copies a CPU state into a model on fl, and an fl state into a CPU model."""
    first, second = nn.Linear(3, 2), nn.Linear(3, 2).to("fl")
    second.load_state_dict(first.state_dict())
    assert torch.equal(second.weight.cpu(), first.weight)
    nn.init.zeros_(second.weight)
    first.load_state_dict(second.state_dict())
    assert first.weight.eq(0).all()


def test_optimizer_state_round_trip() -> None:
    """An optimizer's state saved on fl continues on the CPU."""
    model = nn.Linear(3, 2).to("fl")
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 3, device="fl")).sum().backward()
    optimizer.step()
    host = nn.Linear(3, 2)
    other = torch.optim.Adam(host.parameters())
    other.load_state_dict(_round_trip(optimizer.state_dict(), map_location="cpu"))
    moment = other.state[host.weight]["exp_avg"]
    assert moment.device.type == "cpu"
    assert torch.equal(moment, optimizer.state[model.weight]["exp_avg"].cpu())


def test_copies_and_pickle() -> None:
    """deepcopy and pickle keep values, device, dtype and requires_grad."""
    x = torch.randn(3, device="fl", dtype=torch.float64, requires_grad=True)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.device == x.device
        assert y.requires_grad
        assert y.dtype == torch.float64
        assert torch.equal(x, y)


def test_file_loads_without_the_device(tmp_path: Any) -> None:
    """A file saved on fl opens on the CPU in a process that never loads the backend."""
    path = tmp_path / "state.pt"
    torch.save({"w": torch.arange(4.0, device="fl")}, path)
    run_child(
        f"""
        import torch
        assert not hasattr(torch, "fl")
        assert torch.load({str(path)!r}, map_location="cpu")["w"].tolist() == [0, 1, 2, 3]
        """,
        TORCH_DEVICE_BACKEND_AUTOLOAD="0",
    )
