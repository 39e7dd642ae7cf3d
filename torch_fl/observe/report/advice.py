# SPDX-License-Identifier: Apache-2.0
"""From the reason why a call left the chip to what can be done about it."""

from __future__ import annotations

import re

_KERNEL = "Give the chip a kernel for it in its plugin, or an override in its descriptor (docs/adding_a_chip.md)."
_ADVICE = (
    (r"^the setting route\.", "A setting sends it there: remove it (torch-fl doctor shows where it comes from)."),
    (r"does not compute in (\w+)", "Let the kernel take {0}, or convert the tensors once, before the loop."),
    (r"not strided|sparse", "Convert the tensor with to_dense(), or give the chip a kernel for this layout."),
    (r"out=|mutate|overlap|shares memory", "Call it without out= or in place: the kernel takes fresh results."),
    (r"no kernels? (?:for|to)", _KERNEL),
    (r"needs conversion", "Give the chip a kernel for aten::copy, so that arguments can be converted on it."),
    (r"not dense|strides|contiguous", "Call .contiguous() on the tensor once, before the loop."),
    (r"shape rule|fixed number of outputs", _KERNEL),
)
_OTHER = "The chip's kernel declined this call: torch_fl.explain({op!r}, ...) tells for which arguments."


def fix(op: str, reason: str) -> str:
    """Return what to do, for people."""
    for pattern, advice in _ADVICE:
        found = re.search(pattern, reason)
        if found:
            return advice.format(*found.groups(), op=op)
    return _OTHER.format(op=op)
