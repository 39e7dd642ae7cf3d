# SPDX-License-Identifier: Apache-2.0
"""Scaled dot product attention."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torch_fl.conformance.operators.table import FLOATS, Call, add
from torch_fl.conformance.sampler import Sampler


def _attention(s: Sampler) -> Iterator[Call]:
    for length, keys, width, causal in ((8, 8, 16, False), (8, 8, 16, True), (5, 11, 8, False), (33, 33, 64, True)):
        query, key, value = (s.tensor(2, 3, n, width, low=-1, high=1) for n in (length, keys, keys))
        yield query, key, value, 0.0, causal, {"terms": width + keys}


def _attention_backward(s: Sampler) -> Iterator[Call]:
    for query, key, value, dropout, causal, named in _attention(s):
        arguments = (query, key, value, dropout, causal)
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(*arguments)
        yield s.tensor(*out.shape), query, key, value, out, lse, dropout, causal, {"terms": named["terms"] * 4}


def _big(s: Sampler) -> Iterator[Call]:
    yield tuple(s.tensor(2, 8, 256, 64, low=-1, high=1) for _ in range(3))


def _flops(args: Call) -> float:
    query, key = args[0], args[1]
    return 4.0 * int(query.numel()) * int(key.shape[-2])


add("_scaled_dot_product_flash_attention_for_cpu", _attention, FLOATS, _big, _flops, roundings=8)
add("_scaled_dot_product_flash_attention_for_cpu_backward", _attention_backward, FLOATS, roundings=16)
