# SPDX-License-Identifier: Apache-2.0
"""Whole models on every OpenCL device against stock CPU, on the same two threads and in the same run.

    OCL_ICD_VENDORS=VENV/share/opencl/vendors python chips/opencl/bench_models.py [--only WORD] [--device WORD]

Medians of interleaved turns, as a multiple of the CPU's time; the largest difference of the results; the share of calls
by route. Then, in processes of their own, the time to ResNet-18's first output with empty caches and with full ones.
"""

from __future__ import annotations

import argparse
import copy
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks import common

if TYPE_CHECKING:
    import torch

THREADS = 2
COLD_TARGET_S, WARM_TARGET_S = 60.0, 4.0


def resnet_inference() -> Callable[[str], Callable[[], torch.Tensor]]:
    """ResNet-18, batch of 4 images of 224 x 224."""
    import torch

    from examples.resnet import ResNet18

    torch.manual_seed(0)
    model, images = ResNet18().eval(), torch.randn(4, 3, 224, 224)

    def on(device: str) -> Callable[[], torch.Tensor]:
        mine, batch = copy.deepcopy(model).to(device), images.to(device)
        return lambda: mine(batch)

    return on


def resnet_training() -> Callable[[str], Callable[[], torch.Tensor]]:
    """A step of SGD on the same batch."""
    import torch

    from examples.resnet import ResNet18

    torch.manual_seed(0)
    model, images, labels = ResNet18(), torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,))

    def on(device: str) -> Callable[[], torch.Tensor]:
        mine, batch, wanted = copy.deepcopy(model).train().to(device), images.to(device), labels.to(device)
        optimizer = torch.optim.SGD(mine.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)

        def step() -> torch.Tensor:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(mine(batch), wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    return on


def bert() -> Callable[[str], Callable[[], torch.Tensor]]:
    """BERT-base, 4 sequences of 128 tokens."""
    import torch

    from benchmarks.models import bert_base

    torch.manual_seed(0)
    model, tokens = bert_base().eval(), torch.randint(0, 30522, (4, 128))

    def on(device: str) -> Callable[[], torch.Tensor]:
        mine, batch = copy.deepcopy(model).to(device), tokens.to(device)
        return lambda: mine(batch)[0]

    return on


def gpt2() -> Callable[[str], Callable[[], torch.Tensor]]:
    """GPT-2 small, one more token after 128, with a key-value cache."""
    import torch

    from benchmarks.models import gpt2_small

    torch.manual_seed(0)
    model, tokens = gpt2_small().eval(), torch.randint(0, 50257, (1, 129))

    def on(device: str) -> Callable[[], torch.Tensor]:
        mine, mine_tokens = copy.deepcopy(model).to(device), tokens.to(device)
        cache = mine(mine_tokens[:, :128])[1]
        return lambda: mine(mine_tokens[:, 128:], cache)[0]

    return on


# How it is made, whether it needs gradients, and the most it may take of the CPU's time.
MODELS: dict[str, tuple[Callable[[], Callable[[str], Callable[[], torch.Tensor]]], bool, float]] = {
    "ResNet-18 inference": (resnet_inference, False, 1.5),
    "ResNet-18 training step": (resnet_training, True, 2.0),
    "BERT-base inference": (bert, False, 1.6),
    "GPT-2 small, one token": (gpt2, False, 2.0),
}


def waiting(function: Callable[[], torch.Tensor]) -> Callable[[], Any]:
    """Include the wait for the device."""
    return lambda: function().sum().item()


def shares(function: Callable[[], Any]) -> str:
    """Of one call: the share of operator calls by route, and what went to the host most."""
    import torch_fl

    torch_fl.reset_counters()
    function()
    counters = torch_fl.counters()
    routes, calls = counters.by("route"), max(counters.total().calls, 1)
    text = ", ".join(f"{route} {total.calls / calls:.0%}" for route, total in routes.items())
    host: dict[str, int] = {}
    for row in counters.where(route="host"):
        host[row.name] = host.get(row.name, 0) + row.calls
    worst = sorted(host.items(), key=lambda item: -item[1])[:4]
    return f"{text} of {calls} calls" + "".join(f"; {name} {n}" for name, n in worst)


def measure(name: str, devices: dict[str, str], repeats: int) -> list[common.Row]:
    """One model on the CPU and on all devices, in turns."""
    import torch

    make, gradients, target = MODELS[name]
    rows = []
    with torch.set_grad_enabled(gradients):
        on = make()
        functions = {place: on(place) for place in ("cpu", *devices)}
        first = {place: function().detach().cpu() for place, function in functions.items()}
        routes = {place: shares(functions[place]) for place in devices}
        cases = {place: waiting(function) for place, function in functions.items()}
        times = common.interleave(cases, repeats, seconds=0.0, settle=partial(time.sleep, 0.3))
    cpu_ms = common.median(times["cpu"]) / 1e6
    rows.append(common.Row(f"{name}, cpu", cpu_ms, "ms"))
    for place, label in devices.items():
        difference = (first[place] - first["cpu"]).abs().max() / first["cpu"].abs().max()
        detail = f"{common.median(times[place]) / 1e6:.0f} ms, differs by {difference:.0e}; {routes[place]}"
        rows.append(common.Row(f"{name}, {label}", common.ratio(times, place, "cpu"), "x cpu", target, detail))
    return rows


def first_output(device: str) -> None:
    """In a fresh process: seconds from the model on the CPU to its first output on the device."""
    import torch

    torch.set_num_threads(THREADS)
    on = resnet_inference()
    start = time.perf_counter()
    with torch.no_grad():
        waiting(on(device))()
    print(f"SECONDS {time.perf_counter() - start}")


def starts(device: str, label: str) -> list[common.Row]:
    """Cold and warm."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        settings = {"TORCH_FL_CACHE_DIR": folder, "POCL_CACHE_DIR": f"{folder}/pocl"}
        command = [sys.executable, __file__, "--first-output", device]
        for name, target in (("cold", COLD_TARGET_S), ("second process", WARM_TARGET_S)):
            done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, check=True)
            seconds = float(done.stdout.rsplit("SECONDS", 1)[1])
            rows.append(common.Row(f"first output, {name}, {label}", seconds, "s", target))
    return rows


def main() -> None:
    """Measure, print the table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7, help="interleaved turns; the median counts")
    parser.add_argument("--only", default="", help="models whose name has this word; 'start' for the first output")
    parser.add_argument("--device", default="", help="devices whose name has this word")
    parser.add_argument("--first-output", metavar="DEVICE", help=argparse.SUPPRESS)
    parser.add_argument("--json", help="write the figures here")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a target is missed")
    options = parser.parse_args()
    os.environ.setdefault("TORCH_FL_PLUGIN_PATH", str(common.ROOT / "torch_fl/chips/opencl/libfl_opencl.so"))
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, str(THREADS))
    import torch

    import torch_fl

    if options.first_output:
        return first_output(options.first_output)
    torch.set_num_threads(THREADS)
    devices = {
        record.device: re.sub(r".* \((.+)\)$", r"\1", record.name)
        for record in torch_fl.list_devices()
        if options.device.lower() in record.name.lower()
    }
    if not devices:
        sys.exit("no such device:\n" + "\n".join(map(str, [*torch_fl.list_devices(), *torch_fl.list_plugins()])))
    rows = []
    for name in MODELS:
        if options.only.lower() in name.lower():
            rows += measure(name, devices, options.repeats)
    if options.only in ("", "start"):
        for device, label in devices.items():
            rows += starts(device, label)
    common.finish("models on OpenCL", rows, options)


if __name__ == "__main__":
    main()
