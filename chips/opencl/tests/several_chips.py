# SPDX-License-Identifier: Apache-2.0
"""What the tests do under PyTorch with the simulated chip and every OpenCL device in one process.

several_chips.py NAME calls the function of that name; what it returns is printed as JSON.
"""

from __future__ import annotations

import ctypes
import itertools
import json
import os
import pathlib
import re
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import torch_fl

PLATFORMS = {"pocl": "(Portable Computing Language)", "intel": "(Intel(R) OpenCL)"}
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.int64, torch.int16]
DTYPES += [torch.uint8, torch.bool]


def devices() -> dict[str, str]:
    """Names of this machine's devices, one of each runtime: {"sim": "fl:0", "pocl": "fl:2", ...}."""
    found: dict[str, str] = {}
    for record in torch_fl.list_devices():
        name = record.chip
        if name == "opencl":
            name = next((short for short, platform in PLATFORMS.items() if platform in record.name), record.name)
        found.setdefault(name, record.device)
    return found


def listed() -> dict[str, Any]:
    """What is shown."""
    return {"devices": devices(), "plugins": [str(plugin) for plugin in torch_fl.list_plugins()]}


# ---- Computing and copying
def model() -> None:
    """A small network, forwards and backwards, on every chip; nothing may go to the host."""
    torch_fl.set_config("fallback", "deny")
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(12, 16), torch.nn.GELU(), torch.nn.Linear(16, 7))
    x, wanted = torch.randn(5, 12), torch.randn(5, 7)

    def run(device: str) -> list[torch.Tensor]:
        for p in layers.parameters():
            p.grad = None
        mine, at = layers.to(device), x.clone().to(device).requires_grad_()
        out = mine(at).softmax(1)
        (out * wanted.to(device)).sum().backward()
        assert out.device == torch.device(device)
        return [t.detach().cpu() for t in (out, at.grad, *(p.grad for p in mine.parameters()))]

    expected = run("cpu")
    for name, device in devices().items():
        torch_fl.reset_counters()
        for ours, theirs in zip(run(device), expected):
            torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: f"{n}: {text}")
        routes = torch_fl.counters().by("route")
        assert set(routes) == {"kernel" if name == "sim" else "portable"}, (name, routes)


def layouts(x: torch.Tensor) -> dict[str, torch.Tensor]:
    """Views of one matrix of 6 x 10."""
    return {
        "dense": x, "transposed": x.t(), "every second": x[:, ::2], "offset": x[1:, 3:], "expanded": x[:1].expand(4, 10),
        "scalar": x[2, 3], "empty": x[:0],
    }  # fmt: skip


def copies() -> None:
    """Between all pairs of devices, types and layouts."""
    everywhere = {"cpu": "cpu", **devices()}
    for dtype in DTYPES:
        x = (torch.arange(60) % 7 - 2).reshape(6, 10).to(dtype)
        for source, src in everywhere.items():
            at = x.to(src)
            for target, dst in everywhere.items():
                for (name, view), theirs in zip(layouts(at).items(), layouts(x).values()):
                    what = f"{dtype} {name}: {source} to {target}"
                    moved = view.to(dst, copy=True)
                    later = view.to(dst, copy=True, non_blocking=True)
                    if src != "cpu":
                        torch.fl.synchronize(src)
                    assert moved.device == torch.device(dst), what
                    assert moved.stride() == theirs.clone().stride(), what
                    assert torch.equal(moved.cpu(), theirs), what
                    assert torch.equal(later.cpu(), theirs), what
                # Into another type, and into part of a tensor whose rest must stay.
                if not dtype.is_complex:
                    whole = torch.full((10, 12), 5.0, device=dst)
                    whole.t()[::2].copy_(at)
                    expected = torch.full((10, 12), 5.0)
                    expected.t()[::2].copy_(x)
                    assert torch.equal(whole.cpu(), expected), f"{dtype}: {source} to part of {target}"
    names = list(devices().values())
    for one, other in itertools.pairwise(names):
        with pytest.raises(RuntimeError, match="same device"):
            torch.ones(2, device=one) + torch.ones(2, device=other)


def host_results() -> None:
    """Work on what the host computed, after the result is gone: the host's memory must not be free before."""
    library = torch.library.Library("fl_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CPU")
    x = torch.randn(1 << 18)
    for name, device in devices().items():
        at = x.to(device)
        for _ in range(20):
            y = torch.ops.fl_test.twice(at) + at
            torch.full_like(x, 7.0)  # takes what has been freed
            assert torch.equal(y.cpu(), x * 2 + x), name
            torch.ops.fl_test.twice(at).relu_()


# ---- Random numbers
DRAWS = {
    "rand": lambda n, d: torch.rand(n, device=d),
    "rand float64": lambda n, d: torch.rand(n, device=d, dtype=torch.float64),
    "rand float16": lambda n, d: torch.rand(n, device=d, dtype=torch.float16),
    "rand bfloat16": lambda n, d: torch.rand(n, device=d, dtype=torch.bfloat16),
    "uniform_": lambda n, d: torch.empty(n, device=d).uniform_(-2, 3),
    "uniform_ float64": lambda n, d: torch.empty(n, device=d, dtype=torch.float64).uniform_(-2, 3),
    "randn": lambda n, d: torch.randn(n, device=d),
    "randn float64": lambda n, d: torch.randn(n, device=d, dtype=torch.float64),
    "randn float16": lambda n, d: torch.randn(n, device=d, dtype=torch.float16),
    "normal_": lambda n, d: torch.empty(n, device=d).normal_(1, 2),
    "exponential_": lambda n, d: torch.empty(n, device=d).exponential_(2),
    "randint": lambda n, d: torch.randint(0, 10, (n,), device=d),
    "randint int32": lambda n, d: torch.randint(-5, 1000, (n,), device=d, dtype=torch.int32),
    "randint wide": lambda n, d: torch.randint(-(2**40), 2**40, (n,), device=d),
    "random_": lambda n, d: torch.empty(n, device=d, dtype=torch.int64).random_(),
    "random_ uint8": lambda n, d: torch.empty(n, device=d, dtype=torch.uint8).random_(),
    "bernoulli": lambda n, d: torch.bernoulli(torch.full((n,), 0.3, device=d)),
    "bernoulli_": lambda n, d: torch.empty(n, device=d).bernoulli_(0.3),
    "bernoulli_ float64": lambda n, d: torch.empty(n, device=d, dtype=torch.float64).bernoulli_(0.3),
    "dropout": lambda n, d: F.dropout(torch.ones(n, device=d), 0.3),
    "dropout float64": lambda n, d: F.dropout(torch.ones(n, device=d, dtype=torch.float64), 0.3),
    "dropout float16": lambda n, d: F.dropout(torch.ones(n, device=d, dtype=torch.float16), 0.3),
    "randperm": lambda n, d: torch.randperm(n, device=d),
    "strided": lambda n, d: torch.empty(2 * n, 3, device=d)[::2].t().uniform_(),
}
SIZES = (1, 1001, 40_003)


def draw(folder: str) -> None:
    """Every draw of every size on every device, two calls in a row, saved to be compared."""
    hidden = {"2": " with portable kernels", "1": " without kernels"}.get(os.environ.get("SIMCHIP_HIDE_KERNELS", ""))
    for name, device in devices().items():
        if hidden is not None and name != "sim":
            continue
        drawn = {}
        for draw_name, function in DRAWS.items():
            for n in SIZES:
                torch.manual_seed(7)
                torch.rand(5, device=device)
                drawn[f"{draw_name} {n}"] = [function(n, device).cpu() for _ in range(2)]
        torch.save(drawn, pathlib.Path(folder) / f"{name}{hidden or ''}.pt")


# ---- Waiting
def waits(device: str) -> dict[str, int]:
    """How often the host waits in 20 steps of training, in one that also reads the loss, and in copies of a batch."""
    counted = ctypes.c_int64.in_dll(ctypes.CDLL(os.environ["TORCH_FL_OPENCL_LIBRARY"]), "waits")
    torch_fl.set_config("fallback", "deny")
    torch.manual_seed(0)
    parts = [torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(2)]
    parts += [torch.nn.Flatten(), torch.nn.Dropout(0.2), torch.nn.Linear(128, 32), torch.nn.LayerNorm(32)]
    network = torch.nn.Sequential(*parts, torch.nn.GELU(), torch.nn.Linear(32, 10)).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    images, labels = torch.randn(16, 1, 8, 8).to(device), torch.randint(0, 10, (16,)).to(device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(network(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    def waited(function: Any) -> int:
        before = counted.value
        function()
        return counted.value - before

    for _ in range(3):  # compiling, loading, the first memory
        step()
    torch.fl.synchronize(device)
    batch = torch.randn(16, 1, 8, 8).pin_memory(device)
    return {
        "steps": waited(lambda: [step() for _ in range(20)]),
        "read": waited(lambda: step().item()),
        "pinned": waited(lambda: images.copy_(batch, non_blocking=True)),
    }


# ---- Memory
def resident() -> int:
    """Bytes of this process in memory."""
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", text).group(1)) * 1024


def training(device: str) -> dict[str, list[int]]:
    """A thousand steps: bytes allocated, reserved and resident at several points after the first steps."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8)).to(device)
    optimizer = torch.optim.SGD(layers.parameters(), lr=0.01, momentum=0.9)
    seen: dict[str, list[int]] = {"allocated": [], "reserved": [], "resident": []}
    losses = []
    for step in range(1001):
        x = torch.randn(16 + step % 5, 32, device=device)  # sizes change
        optimizer.zero_grad()
        loss = (layers(x).softmax(1) * x[:, :8]).sum()
        loss.backward()
        optimizer.step()
        if step % 200 == 0:
            losses.append(loss.item())
            del loss, x
            seen["allocated"].append(torch.fl.memory_allocated(device))
            seen["reserved"].append(torch.fl.memory_reserved(device))
            seen["resident"].append(resident())
    assert all(map(torch.isfinite, torch.tensor(losses)))
    return seen


def out_of_memory(device: str) -> dict[str, str]:
    """Beyond the device, with the device full, at the process's limit: what is raised, and that work goes on."""
    torch.fl.set_device(device)
    kept = torch.arange(1000.0, device=device)
    total = torch.fl.mem_get_info(device)[1]
    said = {}

    def megabytes(n: int) -> torch.Tensor:
        return torch.empty(n << 20, dtype=torch.uint8, device=device)

    def refused(what: str, n: int) -> None:
        with pytest.raises(torch.OutOfMemoryError) as error:
            megabytes(n)
        said[what] = str(error.value)
        assert kept.sum().item() == 499500.0

    refused("beyond", 2 * total >> 20)
    held = [megabytes(100) for _ in range((total >> 20) // 100)]
    refused("full", 100)
    del held[::2]
    held.append(megabytes(150))  # for which the cache was emptied
    held.clear()
    torch.fl.set_per_process_memory_fraction(0.25, device)
    torch.fl.empty_cache()
    held = [megabytes(30) for _ in range(5)]
    refused("limit", 200)
    held.clear()
    megabytes(200)
    torch.fl.set_per_process_memory_fraction(1.0, device)
    held = [megabytes(200), megabytes(200)]
    held[0].fill_(1)
    assert held[0][-1].item() == 1
    assert torch.fl.memory_stats(device)["num_ooms"] == 3
    return said


if __name__ == "__main__":
    print("RESULT" + json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
