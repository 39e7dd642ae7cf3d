# SPDX-License-Identifier: Apache-2.0
"""Trains a small network on handwritten digits, its matrix products in OpenBLAS, through a descriptor alone.

chips/openblas/openblas.yaml makes a chip of the system's libopenblas.so.0 (Debian and Ubuntu: libopenblas0-pthread);
there is no plugin. What that library does not have runs on the host.

    python examples/openblas_mlp.py
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

DESCRIPTOR = Path(__file__).resolve().parents[1] / "chips" / "openblas" / "openblas.yaml"
os.environ.setdefault("TORCH_FL_PLUGIN_PATH", str(DESCRIPTOR))

import torch  # noqa: E402
from torch import nn  # noqa: E402

import torch_fl  # noqa: E402


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of 8 x 8 points, and what they show."""
    from sklearn.datasets import load_digits

    data = load_digits()
    return torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)


def network() -> nn.Sequential:
    """Return the network, the same each time."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def train(device: str, epochs: int) -> tuple[list[float], float]:
    """Return the loss of each epoch and the accuracy at the end."""
    images, labels = (tensor.to(device) for tensor in digits())
    model = network().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(epochs):
        total = 0.0
        for part, answers in zip(images.split(128), labels.split(128), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(part), answers)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(part)
        losses.append(total / len(images))
    right = (model(images).argmax(1) == labels).float().mean()
    return losses, right.item()


def main() -> None:
    """Train on OpenBLAS and on PyTorch's own CPU, and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=5)
    epochs = parser.parse_args().epochs
    for plugin in torch_fl.list_plugins():
        print(plugin)
    on_chip, accuracy = train("fl", epochs)
    for row in torch_fl.counters():
        if row.route == "kernel":
            print(f"{row.op:20} {row.route:8} {row.calls:6} calls")
    on_cpu, _ = train("cpu", epochs)
    for epoch, (chip, cpu) in enumerate(zip(on_chip, on_cpu, strict=True)):
        print(f"epoch {epoch}: loss {chip:.5f} on OpenBLAS, {cpu:.5f} on the CPU")
    print(f"{accuracy:.1%} of the digits are recognised")


if __name__ == "__main__":
    main()
