# SPDX-License-Identifier: Apache-2.0
"""Models on a chip with hostile limits, of which only its descriptor knows: the chip aborts the process on any call that
breaks one. The oracle is the CPU in float32; float16 on the CPU tells how far float16 may be off."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_limits import LIMITS

SIM = Path(__file__).parents[1]
ROOT = SIM.parents[1]

PROGRAM = """
import copy, torch, torch_fl
from tests.models.gpt import GPT, Config
from tests.models.resnet import ResNet18

torch.manual_seed(0)
assert torch_fl.list_devices()[0].chip == "sim"
assert torch.device("npu:0") == torch.device("fl:0")

def gradients(model, batch, dtype, device):
    twin = copy.deepcopy(model).to(device=device, dtype=dtype)
    moved = tuple(t.to(device, dtype if t.is_floating_point() else t.dtype) for t in batch)
    loss = twin.loss(moved if len(moved) > 1 else moved[0])
    loss.backward()
    return [loss.detach()] + [p.grad for p in twin.parameters()]

def compare(model, batch):
    exact = gradients(model, batch, torch.float32, "cpu")
    cpu = gradients(model, batch, torch.float16, "cpu")
    chip = gradients(model, batch, torch.float16, "fl")
    for i, (e, c, f) in enumerate(zip(exact, cpu, chip)):
        scale = e.abs().max().item() + 1e-6
        bound = max(3 * (c.float() - e).abs().max().item(), 2e-3 * scale)
        error = (f.cpu().float() - e).abs().max().item()
        assert error <= bound, (i, tuple(e.shape), error, bound)
    return torch_fl.counters()

def ran(calls, op, route):
    return sum(row.calls for row in calls.where(route=route) if row.op == op)
"""


def on_the_hostile_chip(code: str) -> subprocess.CompletedProcess[str]:
    plugin = os.environ.get("FL_SIM_LIBRARY", str(ROOT / "torch_fl/chips/sim/libfl_sim.so"))
    environment = {
        **os.environ,
        **LIMITS,
        "SIMCHIP_ALIGNMENT": "65536",
        "SIMCHIP_DEVICES": "1",
        "SIMCHIP_HIDE_COMPILER": "1",
        "SIM_PLUGIN": plugin,
        "TORCH_FL_PLUGIN_PATH": str(SIM / "hostile.fl.yaml"),
        "PYTHONPATH": str(ROOT),
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM + code], env=environment, capture_output=True, text=True, check=False
    )


def passes(code: str) -> str:
    result = on_the_hostile_chip(code)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_resnet_18_forward_and_backward() -> None:
    passes(
        """
model = ResNet18(width=64, classes=10)
calls = compare(model, (torch.randn(4, 3, 32, 32), torch.tensor([1, 2, 3, 4])))
assert ran(calls, "aten::convolution", "kernel") == 20, calls
assert ran(calls, "aten::convolution_backward", "kernel") == 20, calls
assert ran(calls, "aten::addmm", "host") == 1, calls  # 4 x 512 by 512 x 10: no multiples of 128
"""
    )


def test_a_small_transformer_forward_and_backward() -> None:
    passes(
        """
config = Config(vocabulary=128, context=128, layers=2, heads=1, width=128)
tokens = torch.randint(0, 128, (1, 129))
calls = compare(GPT(config), (tokens,))
assert ran(calls, "aten::mm", "kernel") + ran(calls, "aten::addmm", "kernel") > 10, calls
assert ran(calls, "aten::bmm", "kernel") > 4, calls
"""
    )


@pytest.mark.parametrize(
    ("call", "op", "words"),
    [
        ("torch.nn.functional.conv2d(half(1, 4, 9, 9), half(4, 4, 3, 3), stride=3)", "aten::convolution", "stride"),
        ("half(130, 128) @ half(128, 128)", "aten::mm", "multiple of 128"),
        ("torch.ones(4, device='fl') + 1", "aten::add", "float32"),
    ],
)
def test_a_call_outside_the_constraints_goes_elsewhere_and_the_reason_says_why(call: str, op: str, words: str) -> None:
    passes(
        f"""
def half(*size):
    return torch.ones(size, dtype=torch.float16, device="fl")
{call}
rows = [row for row in torch_fl.counters() if row.op == {op!r}]
assert len(rows) == 1 and rows[0].route != "kernel" and {words!r} in rows[0].reason, rows
"""
    )


def test_views_that_are_not_aligned_are_copied() -> None:
    passes(
        """
x = torch.arange(65536, dtype=torch.float16, device="fl")
y = x[1:1001]
assert torch.equal((y + y).cpu(), x[1:1001].cpu() * 2)
y.mul_(2)
assert torch.equal(x[:3].cpu(), torch.tensor([0, 2, 4]).half())
assert all(row.route == "kernel" for row in torch_fl.counters() if row.op in ("aten::add", "aten::mul_"))
"""
    )


def test_query_op_explains_the_limits_in_words() -> None:
    text = passes("print(torch_fl.query_op('aten::convolution')); print(torch_fl.query_op('aten::mm'))")
    for words in ("channels-last", "stride", "1, 2 or 4", "128", "float16"):
        assert words in text, text


def test_what_a_kernel_writes_where_it_is_not_aligned_is_written_back() -> None:
    passes(
        """
def half(*values):
    return torch.tensor(values, dtype=torch.float16, device="fl")
norm, images = torch.nn.BatchNorm2d(6, momentum=0.5), torch.randn(8, 6, 4, 4)
twin = copy.deepcopy(norm).half().to("fl")
norm(images)
twin(images.half().to("fl"))  # running statistics, of which the schema does not say that they are written
assert any(row.op == "aten::native_batch_norm" and row.route == "kernel" for row in torch_fl.counters())
torch.testing.assert_close(twin.running_mean.cpu().float(), norm.running_mean, rtol=1e-2, atol=1e-2)
torch.testing.assert_close(twin.running_var.cpu().float(), norm.running_var, rtol=1e-2, atol=1e-2)

whole = torch.ones(8, dtype=torch.float16, device="fl")
parameters = [whole[1:4].detach().requires_grad_(), whole[4:7].detach().requires_grad_()]
for name, lr in (("SGD", 0.5), ("Adam", 0.25), ("AdamW", 0.25)):
    whole.fill_(1)
    for p in parameters:
        p.grad = torch.ones_like(p)
    getattr(torch.optim, name)(parameters, lr=lr, fused=True).step()
    assert whole[0] == 1 and whole[7] == 1 and (whole[1:7] < 0.9).all(), (name, whole)
"""
    )


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_fused_optimizers_step_on_an_aligned_chip(name: str, tmp_path: Path) -> None:
    """The lists that they mutate are copied, and written back."""
    descriptor = tmp_path / "aligned.fl.yaml"
    descriptor.write_text("runtime_so: ${SIM_PLUGIN}\ncapabilities: {alignment: 4KiB}\n")
    code = f"""
import torch, torch_fl
def trained(device, fused):
    torch.manual_seed(0)
    parameters = [torch.randn(5).to(device).requires_grad_() for _ in range(3)]
    optimizer = torch.optim.{name}(parameters, lr=0.1, fused=fused)
    for step in range(3):
        for p in parameters:
            p.grad = torch.full_like(p, 0.5 + step)
        optimizer.step()
    return torch.stack([p.detach().cpu() for p in parameters])
torch.testing.assert_close(trained("fl", True), trained("cpu", False))
assert any("fused" in row.op and row.route == "kernel" for row in torch_fl.counters()), torch_fl.counters()
"""
    environment = {
        **os.environ,
        "SIM_PLUGIN": os.environ.get("FL_SIM_LIBRARY", str(ROOT / "torch_fl/chips/sim/libfl_sim.so")),
        "TORCH_FL_PLUGIN_PATH": str(descriptor),
        "TORCH_FL_ALLOW_UNSAFE_PLUGINS": "1",
        "PYTHONPATH": str(ROOT),
    }
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
