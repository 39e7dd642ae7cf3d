# SPDX-License-Identifier: Apache-2.0
"""ResNet-18 for 32x32 images (He et al., 2015): a 3x3 stem, four stages of two basic blocks."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from examples.resnet import BasicBlock


class ResNet18(nn.Module):
    def __init__(self, channels: int = 3, classes: int = 10, width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(channels, width, 3, 1, 1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
        )
        stages = []
        inputs = width
        for stage in range(4):
            outputs = width << stage
            stages += [BasicBlock(inputs, outputs, 1 if stage == 0 else 2), BasicBlock(outputs, outputs, 1)]
            inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(inputs, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.pool(self.stages(self.stem(x))).flatten(1))

    def loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)
