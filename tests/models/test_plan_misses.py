# SPDX-License-Identifier: Apache-2.0
"""Planning the calls of whole networks asks no Python shape rule: the first one would cost over a second."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.harness import device
from tests.harness.device import DEVICE
from tests.models.gpt import GPT, Config
from tests.models.resnet import ResNet18

torch_fl = device.load()
pytestmark = pytest.mark.skipif(torch_fl is None, reason="a stock device makes no plans")

Network = tuple[nn.Module, Callable[[], torch.Tensor]]


def _resnet() -> Network:
    model = ResNet18(width=8).to(DEVICE)
    batch = torch.randn(4, 3, 32, 32, device=DEVICE), torch.randint(0, 10, (4,), device=DEVICE)
    return model, lambda: model.loss(batch)


def _gpt(fused: bool) -> Network:
    model = GPT(Config(dropout=0.1, fused_attention=fused)).to(DEVICE)
    tokens = torch.randint(0, 64, (2, 33), device=DEVICE)
    return model, lambda: model.loss(tokens)


class Tagger(nn.Module):
    """A label for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True)
        self.head = nn.Linear(32, 5)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embed(words))[0])


def _lstm() -> Network:
    model = Tagger().to(DEVICE)
    words, tags = torch.randint(0, 20, (3, 7), device=DEVICE), torch.randint(0, 5, (3, 7), device=DEVICE)
    return model, lambda: F.cross_entropy(model(words).flatten(0, 1), tags.flatten())


NETWORKS: dict[str, Callable[[], Network]] = {
    "resnet18": _resnet,
    "gpt": lambda: _gpt(False),
    "gpt-fused-attention": lambda: _gpt(True),
    "lstm": _lstm,
}
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "sgd": lambda model: torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9),
    "adamw": lambda model: torch.optim.AdamW(model.parameters(), lr=0.001),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("network", NETWORKS)
def test_training_and_evaluating_ask_no_python(network: str, optimizer: str) -> None:
    from torch_fl import _C

    torch_fl.clear_dispatch_cache()
    before = _C.python_meta_calls()
    model, loss = NETWORKS[network]()
    steps = OPTIMIZERS[optimizer](model)
    for _ in range(2):
        steps.zero_grad()
        loss().backward()
        steps.step()
    model.eval()
    with torch.no_grad():
        assert torch.isfinite(loss())
    assert _C.python_meta_calls() - before == 0
