# SPDX-License-Identifier: Apache-2.0
"""Well-known networks in plain torch.nn, with random weights: what a baseline measures as whole models."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Cache = list[tuple[Tensor, Tensor]]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            projection = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.downsample = nn.Sequential(projection, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return relu(block(x) + shortcut(x))."""
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        shortcut: Tensor = self.relu(out + self.downsample(x))
        return shortcut


class ResNet18(nn.Module):
    """ResNet-18 (He et al., 2015); with 64 channels in its first stage the standard one of 11.7 million parameters."""

    def __init__(self, classes: int = 1000, width: int = 64) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        widths = (width, *(width << stage for stage in range(4)))
        self.stages = nn.Sequential(
            *(
                nn.Sequential(BasicBlock(a, b, 1 if a == b else 2), BasicBlock(b, b, 1))
                for a, b in itertools.pairwise(widths)
            )
        )
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits of a batch of images."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.avgpool(self.stages(x))
        logits: Tensor = self.fc(torch.flatten(x, 1))
        return logits


class Attention(nn.Module):
    """Multi-head self-attention; with a cache, over what came before as well."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, causal: bool, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, the keys and the values."""
        batch, length, width = x.shape
        parts = self.project(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        if past is not None:
            key, value = torch.cat([past[0], key], dim=2), torch.cat([past[1], value], dim=2)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=causal and past is None)
        return self.output(y.transpose(1, 2).reshape(batch, length, width)), key, value


class Layer(nn.Module):
    """Attention and MLP, each with a residual; normalised before them (GPT-2) or after (BERT)."""

    def __init__(self, width: int, heads: int, norm_first: bool) -> None:
        super().__init__()
        self.norm_first = norm_first
        self.attention = Attention(width, heads)
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        approximate = "tanh" if norm_first else "none"
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, causal: bool, past: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        """Return the result, the keys and the values."""
        y, key, value = self.attention(self.norm_1(x) if self.norm_first else x, causal, past)
        if self.norm_first:
            x = x + y
            return x + self.mlp(self.norm_2(x)), key, value
        x = self.norm_1(x + y)
        return self.norm_2(x + self.mlp(x)), key, value


class Transformer(nn.Module):
    """BERT-base (norm_first=False) or GPT-2 small (norm_first=True, causal)."""

    def __init__(
        self, vocabulary: int, context: int, norm_first: bool, layers: int = 12, width: int = 768, heads: int = 12
    ) -> None:
        super().__init__()
        self.causal = norm_first
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.norm = nn.LayerNorm(width)
        self.layers = nn.ModuleList(Layer(width, heads, norm_first) for _ in range(layers))

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> tuple[Tensor, Cache]:
        """Return BERT's hidden states or GPT-2's logits of the last token, and the keys and values of every layer."""
        start = cache[0][0].shape[2] if cache else 0
        x = self.tokens(tokens) + self.positions(torch.arange(start, start + tokens.shape[1], device=tokens.device))
        if not self.causal:
            x = self.norm(x)
        seen: Cache = []
        for i, layer in enumerate(self.layers):
            x, key, value = layer(x, self.causal, cache[i] if cache else None)
            seen.append((key, value))
        return (F.linear(self.norm(x[:, -1]), self.tokens.weight) if self.causal else x), seen


def bert_base() -> Transformer:
    """12 layers of 768 with 12 heads, a vocabulary of 30,522: 109 million parameters."""
    return Transformer(30522, 512, norm_first=False)


def gpt2_small() -> Transformer:
    """12 layers of 768 with 12 heads, a vocabulary of 50,257, tied: 124 million parameters."""
    return Transformer(50257, 1024, norm_first=True)
