# SPDX-License-Identifier: Apache-2.0
"""A chip in thirty lines of Python: three operators in numpy, and an MLP that learns handwritten digits with them.

The class below is the whole chip. It implements matrix products, additions and ReLU; what else training needs (the
loss, sums, the optimizer's other arithmetic) is decomposed into these, or runs on the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import torch_fl

TEST_IMAGES = 360
EPOCHS = 30
BATCH = 64
REQUIRED_ACCURACY = 0.93


@torch_fl.register_backend("numpy", vendor="numpy", dtypes=["float32"])
class NumpyChip:
    """Computes with numpy, in memory of the host."""

    operators = ("aten::mm", "aten::add.Tensor", "aten::relu")

    def init_runtime(self) -> dict[str, Any]:
        """Nothing is to be started; tell what there is."""
        return {"name": "numpy", "driver_version": np.__version__}

    def dispatch(self, op_name: str, tensors: list[torch_fl.TensorView], params: dict[str, Any]) -> Any:
        """Return the result as a new array, or write it where it shall be."""
        arrays = [tensor.numpy() for tensor in tensors]
        if op_name == "aten::mm":
            return arrays[0] @ arrays[1]
        if op_name == "aten::add.Tensor":
            return arrays[0] + arrays[1] * np.float32(params["alpha"])
        (out,) = params["out"]
        np.maximum(arrays[0], 0, out=out.numpy())
        return params["out"]


def load_data(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return images and labels to learn from, and those to test with."""
    digits = load_digits()
    images = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(labels))
    images, labels = images[order].to(device), labels[order].to(device)
    return images[TEST_IMAGES:], labels[TEST_IMAGES:], images[:TEST_IMAGES], labels[:TEST_IMAGES]


def train(model: nn.Module, images: Tensor, labels: Tensor) -> None:
    """Minimise the cross entropy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        total = 0.0
        for batch, targets in zip(images.split(BATCH), labels.split(BATCH), strict=True):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(batch), targets)
            loss.backward()
            optimizer.step()
            total += loss.item() * len(batch)
        if epoch % 10 == 9:
            print(f"epoch {epoch + 1:3}  loss {total / len(images):.4f}")


def main() -> None:
    """Train, test, and tell which operator went which way."""
    torch.manual_seed(0)
    chip = next(device for device in torch_fl.list_devices() if device.chip == "numpy")
    print(chip)
    device = torch.device(chip.device)
    train_images, train_labels, test_images, test_labels = load_data(device)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    torch_fl.reset_counters()
    train(model, train_images, train_labels)
    print(torch_fl.counters())
    accuracy = (model(test_images).argmax(1) == test_labels).float().mean().item()
    print(f"accuracy {accuracy:.4f} (at least {REQUIRED_ACCURACY} is expected)")
    if accuracy < REQUIRED_ACCURACY:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
