# SPDX-License-Identifier: Apache-2.0
"""Random numbers: not the CPU's, but of its distribution, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from torch_fl.conformance.operators.table import FLOATS, INTEGERS, Call, Generator, add
from torch_fl.conformance.sampler import Sampler


def _fill(*rest: Any) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        yield (torch.zeros(100, 100, dtype=s.dtype), *rest)
        yield (torch.zeros(4099, dtype=s.dtype), *rest)

    return generate


def _dropout(s: Sampler) -> Iterator[Call]:
    yield torch.ones(100, 100, dtype=s.dtype), 0.3, True


add("uniform_", _fill(-1.0, 3.0), FLOATS, draws=True)
add("normal_", _fill(0.5, 2.0), FLOATS, draws=True)
add("exponential_", _fill(2.0), FLOATS, draws=True)
add("log_normal_", _fill(0.2, 0.3), FLOATS, draws=True)
add("cauchy_", _fill(0.5, 0.1), FLOATS, draws=True)
add("geometric_", _fill(0.3), FLOATS + INTEGERS, draws=True)
add("bernoulli_.float", _fill(0.3), FLOATS + INTEGERS, draws=True)
add("random_.from", _fill(3, 90), FLOATS + INTEGERS, draws=True)
add("native_dropout", _dropout, FLOATS, draws=True)
