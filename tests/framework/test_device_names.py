# SPDX-License-Identifier: Apache-2.0
"""Vendors' names for devices, and `alias_cuda`. In child processes: a name lasts as long as its process."""

from __future__ import annotations

import subprocess

import pytest
import torch

from tests.framework.helpers import needs_two_devices, run_child
from torch_fl.device import names

TWO_NAMES = """
import io, torch, torch_fl
from torch_fl.device import names
names.start({"npu": [0], "mlu": [1]})

def error(call):
    try:
        call()
    except Exception as error:
        return str(error)
    raise AssertionError("nothing was raised")
"""


def in_two_names(code: str) -> subprocess.CompletedProcess[str]:
    return run_child(TWO_NAMES + "\n".join(line.strip("\n") for line in code.splitlines()))


@needs_two_devices
def test_names_are_read_wherever_pytorch_reads_a_device() -> None:
    in_two_names(
        """
assert torch.device("npu") == torch.device("npu:0") == torch.device("fl:0")
assert torch.device("mlu") == torch.device("mlu:0") == torch.device("fl:1")
x = torch.randn(3, device="mlu", requires_grad=True)
assert x.device == torch.device("fl:1")
for y in (x.to("npu"), x.to(device="npu:0"), torch.empty_like(x, device="npu")):
    assert y.device == torch.device("fl:0")
assert torch.Generator(device="mlu").device == torch.device("fl:1")
assert torch.nn.Linear(2, 2, device="mlu").weight.device == torch.device("fl:1")
torch.set_default_device("mlu")
assert torch.ones(2).device == torch.device("fl:1")
torch.set_default_device(None)
with torch.device("mlu"):
    assert torch.ones(2).device == torch.device("fl:1")
x.exp().sum().backward()
assert x.grad.device == torch.device("fl:1")
"""
    )


@needs_two_devices
def test_the_name_without_an_index_means_the_current_device_where_it_has_the_name() -> None:
    run_child(
        """
import torch, torch_fl
from torch_fl.device import names
names.start({"npu": [0, 1]})
assert torch.device("npu").index is None and torch.device("npu", 1) == torch.device("fl:1")
with torch.npu.device(1):
    assert torch.ones(1, device="npu").device == torch.device("fl:1")
    assert torch.npu.current_device() == 1
"""
    )


@needs_two_devices
def test_wrong_names_are_errors_that_say_what_is_right() -> None:
    in_two_names(
        """
assert "there is 1 device of that name" in error(lambda: torch.device("npu:1"))
for text in ("npu:", "npu:x", "npu:-1", "npu:01", "npu:0:0", "npu: 0", "npu:99999999999"):
    assert "expected npu or npu:<index>" in error(lambda: torch.device(text)), text
for text in ("npux", "np", "NPU", ":0", ""):
    assert "npu or" not in error(lambda: torch.device(text)), text
assert torch.device("cpu").type == "cpu" and torch.device("cuda:3").index == 3
assert "torch.npu" in error(lambda: torch.npu.nothing_of_that_kind)
assert "npu has 1 device" in error(lambda: torch.npu.set_device(1))
assert "expected a device of npu" in error(lambda: torch.npu.synchronize("cpu"))
"""
    )


@needs_two_devices
def test_the_vendors_module_counts_its_own_devices() -> None:
    in_two_names(
        """
import torch.mlu
assert torch.npu.is_available() and torch.npu.device_count() == torch.mlu.device_count() == 1
assert torch.mlu.get_device_name(0) == torch.mlu.get_device_name() == torch.fl.get_device_name(1)
before = torch.npu.memory_allocated()
kept = torch.ones(1000, device="mlu")
assert torch.mlu.memory_allocated(0) >= 4000 and torch.npu.memory_allocated("npu:0") == before
stream = torch.mlu.Stream(priority=-1)
assert stream.device == torch.device("fl:1") and isinstance(stream, torch.fl.Stream)
with torch.mlu.stream(stream):
    assert torch.mlu.current_stream() == stream and torch.mlu.current_stream("mlu:0") == stream
event = torch.mlu.Event(enable_timing=True)
event.record()
event.synchronize()
torch.mlu.manual_seed(5)
first = torch.rand(4, device="mlu")
torch.mlu.manual_seed_all(5)
assert torch.equal(first, torch.rand(4, device="mlu"))
assert not torch.equal(first.cpu(), torch.rand(4, device="npu").cpu())
torch.mlu.set_device(0)
assert torch.fl.current_device() == 1 and torch.mlu.current_device() == 0 and torch.npu.current_device() == 0
assert torch.device("npu") == torch.device("fl:0")
torch.mlu.synchronize()
assert "memory_stats" in dir(torch.mlu)
"""
    )


@needs_two_devices
def test_tensors_and_modules_have_the_name_as_a_method() -> None:
    in_two_names(
        """
x = torch.ones(2, 3, 4, 4)
assert x.npu().is_npu and not x.npu().is_mlu and not x.is_npu and x.mlu(0).is_mlu
assert x.mlu(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
assert torch.nn.Linear(2, 2).mlu().weight.is_mlu
assert "1 device" in error(lambda: x.npu(1))
"""
    )


@needs_two_devices
def test_saved_tensors_load_onto_a_named_device() -> None:
    in_two_names(
        """
file = io.BytesIO()
torch.save({"x": torch.arange(4.0, device="npu")}, file)
for place, device in (("mlu", "fl:1"), ("npu:0", "fl:0"), (torch.device("mlu"), "fl:1"), ({"fl:0": "mlu:0"}, "fl:1")):
    file.seek(0)
    x = torch.load(file, map_location=place)["x"]
    assert x.device == torch.device(device) and x.tolist() == [0, 1, 2, 3], place
"""
    )


@needs_two_devices
def test_autocast_and_gradient_scaling_take_the_name() -> None:
    in_two_names(
        """
a = torch.ones(3, 3, device="npu")
with torch.autocast("npu", dtype=torch.bfloat16):
    assert (a @ a).dtype is torch.bfloat16
assert torch.amp.GradScaler("npu").scale(torch.ones((), device="npu")).item() == 65536
"""
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Npu", "expected lower-case"),
        ("a b", "expected lower-case"),
        ("", "expected lower-case"),
        ("x" * 33, "expected lower-case"),
        ("cpu", "PyTorch uses itself"),
        ("cuda", "PyTorch uses itself"),
        ("xpu", "PyTorch uses itself"),
        ("mtia", "PyTorch uses itself"),
        ("vulkan", "PyTorch uses itself"),
        ("fl", "PyTorch uses itself"),
        ("nn", "PyTorch uses itself"),
        ("add", "PyTorch uses itself"),
    ],
)
def test_names_that_pytorch_has_are_refused(name: str, text: str) -> None:
    refusal = names.refusal(name)
    assert refusal is not None
    assert text in refusal
    with pytest.warns(RuntimeWarning, match=text):
        names.start({name: [0]})
    assert torch.ones(1, device="fl").device.type == "fl"


def test_scripts_that_say_cuda_run() -> None:
    run_child(
        """
import io, torch, torch_fl
before = {name: getattr(torch.cuda, name) for name in dir(torch.cuda)}
methods = torch.Tensor.cuda, torch.Tensor.is_cuda, torch.nn.Module.cuda
torch_fl.alias_cuda()
torch_fl.alias_cuda()
assert torch.cuda.is_available() and torch.cuda.device_count() == torch.fl.device_count()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
torch.cuda.manual_seed_all(1)
losses = []
for _ in range(20):
    optimizer.zero_grad()
    x = torch.ones(3, 4).cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
torch.cuda.synchronize()
assert losses[-1] < losses[0]
assert x.is_cuda and x.device.type == "fl" and next(model.parameters()).is_cuda and not torch.ones(1).is_cuda
assert torch.cuda.memory.memory_allocated() == torch.cuda.memory_allocated() > 0
assert torch.cuda.memory_cached() == torch.cuda.memory_reserved() > 0
torch.cuda.random.manual_seed_all(5)
first = torch.rand(1, device="cuda")
torch.cuda.random.manual_seed_all(5)
assert torch.equal(first, torch.rand(1, device="cuda"))
assert torch.cuda.get_device_name(0) == torch.fl.get_device_name(0)
with torch.cuda.stream(torch.cuda.Stream()):
    torch.ones(2, device="cuda:0") + 1
file = io.BytesIO()
torch.save(model.state_dict(), file)
file.seek(0)
assert torch.load(file, map_location="cuda")["0.weight"].is_cuda
torch_fl.unalias_cuda()
torch_fl.unalias_cuda()
assert all(getattr(torch.cuda, name) is value for name, value in before.items() if not name.startswith("__"))
assert (torch.Tensor.cuda, torch.Tensor.is_cuda, torch.nn.Module.cuda) == methods
assert torch.device("cuda").type == "cuda" and not torch.cuda.is_available()
"""
    )


def test_without_a_device_there_is_nothing_to_alias() -> None:
    run_child(
        """
import torch, torch_fl
try:
    torch_fl.alias_cuda()
except RuntimeError as error:
    assert "there is no fl device" in str(error)
else:
    raise AssertionError
""",
        TORCH_FL_PLUGIN_PATH="",
    )


def test_where_pytorch_cannot_be_taught_a_message_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Core:
        def name_devices(self, name: str, devices: list[int]) -> int:
            return 0

        def device_count(self) -> int:
            return 1

    monkeypatch.setattr(names._load, "core", Core)
    with pytest.warns(RuntimeWarning, match="'zpu' means nothing as a device; write 'fl' instead"):
        names.start({"zpu": [0]})
    assert not hasattr(torch, "zpu")
    with pytest.raises(RuntimeError, match="write 'fl' instead"):
        names.alias_cuda()
