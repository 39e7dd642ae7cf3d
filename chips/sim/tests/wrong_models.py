# SPDX-License-Identifier: Apache-2.0
"""Small models, each calling operators that can be made wrong. Most do not show the fault with their own data."""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Made = tuple[nn.Module, Any]


class Residual(nn.Module):
    """Adds what its parts gave, in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(12, 12), nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first(x)
        y += self.second(x)
        return y


class Attention(nn.Module):
    """Attention over 6 places; its scores are square."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.weights = nn.Softmax(dim=-1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(-1, -2)
        return self.weights(scores) @ x


class Narrow(nn.Module):
    """Casts to bfloat16 and back."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.narrow = nn.Linear(12, 12), Cast()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.narrow(self.dense(x))


class Cast(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.bfloat16).float()


class Loss(nn.Module):
    """A model with its loss."""

    def __init__(self) -> None:
        super().__init__()
        self.dense, self.loss = nn.Linear(12, 4), nn.MSELoss()

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(self.dense(x), target)


class Gate(nn.Module):
    """Multiplies by a gate of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x) * F.sigmoid(x)


def images() -> Made:
    """Convolution, batch norm, ReLU, dropout, linear."""
    body = (nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.Flatten(), nn.Dropout(), nn.Linear(216, 4))
    return nn.Sequential(*body), torch.randn(4, 3, 6, 6)


def dense() -> Made:
    """Linear, GELU, layer norm, of even sizes."""
    return nn.Sequential(nn.Linear(12, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 8)), torch.randn(6, 12)


def half() -> Made:
    """A linear layer in float16, long sums."""
    return nn.Sequential(nn.Linear(256, 16)).half(), torch.randn(8, 256).half()


def words() -> Made:
    """An embedding whose words occur more than once."""
    return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 4)), torch.randint(0, 10, (3, 12))


def residual() -> Made:
    """A residual block, added in place."""
    return nn.Sequential(nn.Linear(12, 12), Residual()), torch.randn(6, 12)


def attention() -> Made:
    """Attention."""
    return nn.Sequential(nn.Linear(8, 8), Attention()), torch.randn(2, 6, 8)


def narrow() -> Made:
    """A cast."""
    return Narrow(), torch.randn(6, 12)


def loss() -> Made:
    """A loss."""
    return Loss(), (torch.randn(6, 12), torch.randn(6, 4))


def gate() -> Made:
    """A gate."""
    return nn.Sequential(nn.Linear(12, 12), Gate()), torch.randn(6, 12)


MODELS = (images, dense, half, words, residual, attention, narrow, loss, gate)

# fault: model, operators that the fault makes wrong and the model calls, the first to be named first; layer to be named
FAULTS = {
    "truncating-cast": (narrow, ("aten::_to_copy",), "narrow"),
    "narrow-sums": (half, ("aten::addmm", "aten::mm"), "0"),
    "narrow-factors": (dense, ("aten::addmm", "aten::mm"), "0"),
    "dropped-nan": (images, ("aten::relu",), "2"),
    "unshifted-softmax": (attention, ("aten::_softmax",), "1.weights"),
    "tanh-gelu": (dense, ("aten::gelu",), "1"),
    "wrong-epsilon": (dense, ("aten::native_layer_norm",), "2"),
    "wrong-axis": (attention, ("aten::_softmax",), "1.weights"),
    "odd-tail": (dense, ("aten::gelu",), "1"),
    "ignored-strides": (gate, ("aten::mul.Tensor", "aten::add.Tensor"), "1"),
    "stale-weights": (images, ("aten::convolution", "aten::addmm"), "0"),
    "cleared-output": (residual, ("aten::add_.Tensor", "aten::add.Tensor"), "1"),
    "population-variance": (images, ("aten::native_batch_norm",), "1"),
    "softmax-gradient": (attention, ("aten::_softmax_backward_data",), "1.weights"),
    "unsummed-bias": (images, ("aten::convolution_backward",), "0"),
    "missing-factor": (loss, ("aten::mse_loss_backward",), "loss"),
    "lost-duplicates": (words, ("aten::embedding_dense_backward",), "0"),
}


def aligned(make: Any, fault: str = "") -> dict[str, Any]:
    """Align a model on the simulated chip, with a fault in force."""
    from torch_fl.observe.align import align

    sdk = ctypes.CDLL(str(Path(os.environ["TORCH_FL_PLUGIN_PATH"]).with_name("libsimchip.so")))
    torch.manual_seed(1)
    model, inputs = make()
    sdk.simInjectWrongKernel(fault.encode())
    try:
        report = align(model, inputs, precision=False)
    finally:
        sdk.simInjectWrongKernel(None)
    return report.as_dict()


def main(which: str, share: str) -> None:
    """Print, as JSON, the reports on every second right model or fault."""
    torch.set_num_threads(1)
    torch.zeros(1, device="fl:0")  # the plugin is loaded
    if which == "right":
        found = {make.__name__: aligned(make) for make in MODELS}
    else:
        names = list(FAULTS)[int(share) :: 2]
        found = {name: aligned(FAULTS[name][0], name) for name in names}
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(*sys.argv[1:])
