# SPDX-License-Identifier: Apache-2.0
"""Faults of a working chip, injected into `sim`: memory runs out, a kernel fails, a device is lost or will not open."""

from __future__ import annotations

import json

import pytest

from tests.plugins.helpers import run_python, succeed

PRELUDE = """
import json, torch, torch_fl

def error_of(f):
    try:
        f()
    except Exception as error:
        return [type(error).__name__, str(error)]
    raise AssertionError("expected an error")
"""


def run(code: str, **environment: str) -> list[object]:
    """Run code that ends by assigning `result`, in a process that must end cleanly, and return that."""
    output = succeed(PRELUDE + code + "\nprint(json.dumps(result))\n", **environment)
    found = json.loads(output.splitlines()[-1])
    assert isinstance(found, list)
    return found


def test_out_of_memory_says_the_figures_and_work_goes_on() -> None:
    code = """
kept = torch.ones(16 << 20, dtype=torch.uint8, device="fl")
name, text = error_of(lambda: torch.empty(1 << 30, dtype=torch.uint8, device="fl"))
result = [name, text, int(kept.sum().item()), torch.fl.memory_allocated() >= 16 << 20]
"""
    name, text, total, counted = run(code, SIMCHIP_MEMORY_MB="64")
    assert name == "OutOfMemoryError"
    assert "fl out of memory. Tried to allocate 1.00 GiB. fl:0 has a total capacity of 64.00 MiB of which" in str(text)
    assert "16.00 MiB is allocated by PyTorch" in str(text)
    assert total == 16 << 20
    assert counted


def test_the_cache_is_emptied_before_memory_runs_out() -> None:
    code = """
a = torch.empty(40 << 20, dtype=torch.uint8, device="fl")
del a
b = torch.ones(50 << 20, dtype=torch.uint8, device="fl")
stats = torch.fl.memory_stats()
result = [int(b.sum().item()), stats["num_alloc_retries"], stats["num_ooms"]]
"""
    assert run(code, SIMCHIP_MEMORY_MB="64") == [50 << 20, 1, 0]


def test_a_chip_that_has_less_than_it_says() -> None:
    code = """
name, text = error_of(lambda: torch.empty(40 << 20, dtype=torch.uint8, device="fl"))
result = [name, text, torch.ones(8 << 20, dtype=torch.uint8, device="fl").sum().item()]
"""
    name, text, total = run(code, SIMCHIP_OOM_AFTER_MB="32")
    assert name == "OutOfMemoryError"
    assert "Tried to allocate 40.00 MiB" in str(text)
    assert total == 8 << 20


@pytest.mark.parametrize("inline", ["0", "1"])
def test_a_kernel_that_fails_is_an_error_and_the_next_call_works(inline: str) -> None:
    code = """
x = torch.tensor([-1.0, 2.0], device="fl")

def failing():
    torch.relu(x)
    torch.fl.synchronize()

name, text = error_of(failing)
result = [name, text, torch.relu(x).tolist()]
"""
    name, text, relu = run(code, SIMCHIP_FAIL_KERNEL="aten::relu", SIMCHIP_INLINE=inline)
    assert isinstance(name, str)
    assert name.endswith("Error")
    assert "kernel aten::relu failed on device 0 (injected fault)" in str(text)
    assert "fl:0" in str(text)
    assert relu == [0.0, 2.0]


@pytest.mark.parametrize("inline", ["0", "1"])
def test_a_lost_device_is_refused_from_then_on_and_the_other_goes_on(inline: str) -> None:
    code = """
x = torch.tensor([-1.0, 2.0], device="fl:0")
y = torch.tensor([-1.0, 2.0], device="fl:1")

def failing():
    for _ in range(5):
        torch.relu(x)
    torch.fl.synchronize(0)

first = error_of(failing)
later = [error_of(lambda: torch.relu(x)), error_of(lambda: x.cpu()), error_of(lambda: torch.ones(3, device="fl:0"))]
result = [first, later, torch.relu(y).tolist(), (y + 1).cpu().tolist()]
del x
"""
    first, later, relu, plus = run(code, SIMCHIP_LOSE_DEVICE="0:3", SIMCHIP_INLINE=inline)
    assert isinstance(first, list)
    assert isinstance(later, list)
    assert "device lost" in first[1]
    assert "fl:0" in first[1]
    for _, text in later:
        assert "device fl:0 is lost and can no longer be used" in text
        assert "restart the process" in text
    assert relu == [0.0, 2.0]
    assert plus == [0.0, 3.0]


def test_losing_a_device_during_training_leaves_a_clean_process() -> None:
    code = """
import sys
import torch, torch_fl
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to("fl:0")
optimizer = torch.optim.Adam(model.parameters())
try:
    for step in range(1000):
        optimizer.zero_grad()
        model(torch.randn(4, 8, device="fl:0")).square().mean().backward()
        optimizer.step()
        torch.fl.synchronize(0)
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(3)
"""
    result = run_python(code, SIMCHIP_LOSE_DEVICE="0:200")
    assert result.returncode == 3, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    assert "lost" in result.stdout


def test_a_device_that_will_not_open_leaves_the_other_alone() -> None:
    code = """
result = [error_of(lambda: torch.ones(2, device="fl:1")), torch.ones(2, device="fl:0").sum().item()]
"""
    error, total = run(code, SIMCHIP_FAIL_INIT="1")
    assert isinstance(error, list)
    assert "device fl:1: opening the device failed" in error[1]
    assert total == 2.0


def test_a_chip_without_devices_is_reported() -> None:
    code = """
result = [torch.fl.is_available(), [[p.loaded, p.reason] for p in torch_fl.list_plugins()]]
"""
    available, plugins = run(code, SIMCHIP_DEVICES="0")
    assert available is False
    assert [False, "it works, but found no device of the chip sim"] in plugins  # type: ignore[operator]


def test_slow_streams_change_no_result() -> None:
    code = """
torch.manual_seed(0)
a, b = torch.randn(32, 32), torch.randn(32, 32)
x, y = a.to("fl:0"), b.to("fl:0")
s = torch.Stream("fl:0")
s.wait_stream(torch.accelerator.current_stream("fl:0"))
with s:
    z = (x @ y).relu()
torch.accelerator.current_stream("fl:0").wait_stream(s)
w = (z + 1).to("fl:1") * 2
expected = ((a @ b).relu() + 1) * 2
result = [bool(torch.allclose(w.cpu(), expected, atol=1e-5))]
"""
    assert run(code, SIMCHIP_SLOW_STREAM_US="2000") == [True]


def test_what_a_late_kernel_looks_at_is_still_there() -> None:
    """Plans that cannot be remembered (an out= that was resized) are gone when the stream gets to their kernels."""
    code = """
x = torch.arange(4.0)
y = x.to("fl")
ops = [torch.neg, torch.exp, torch.sin, torch.sqrt]
outs = [op(y, out=torch.empty(0, device="fl")) for op in ops]
result = [bool(torch.allclose(out.cpu(), op(x))) for op, out in zip(ops, outs)]
"""
    assert run(code, SIMCHIP_SLOW_STREAM_US="5000") == [True] * 4


@pytest.mark.parametrize("code", ["x = torch.ones(4, device='fl')", "torch.fl.synchronize()", "pass"])
def test_processes_end_cleanly(code: str) -> None:
    result = run_python("import torch, torch_fl\n" + code)
    assert result.returncode == 0
    assert result.stderr == ""
