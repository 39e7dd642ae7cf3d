# SPDX-License-Identifier: Apache-2.0
"""The one table of known differences between the device and the CPU.

(operator, dtype or "*", variant or "*", reason). A row that matches no failure is stale and fails the suite, and the
pairs listed must stay below LIMIT of all pairs. Operators are named as OpInfo.full_name; ModuleInfos and OptimizerInfos
as "module:<name>" and "optimizer:<name>".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

LIMIT = 0.01


class Exemption(NamedTuple):
    op: str
    dtype: str
    variant: str
    reason: str

    def matches(self, key: tuple[str, str, str]) -> bool:
        op, dtype, variant = key
        return self.op == op and self.dtype in ("*", dtype) and self.variant in ("*", variant)


_SPARSE = "works on sparse tensors; fl devices hold strided tensors only"

EXEMPTIONS: tuple[Exemption, ...] = (
    Exemption("sparse.sampled_addmm", "*", "*", _SPARSE),
    Exemption("sparse.mm.reduce", "*", "*", _SPARSE),
    Exemption("to_sparse", "*", "*", _SPARSE),
    Exemption("optimizer:SparseAdam", "*", "*", _SPARSE),
    Exemption(
        "nn.functional.normalize",
        "bfloat16",
        "backward",
        "along a dimension of one element the gradient is the difference of two equal terms of size grad / norm, each "
        "rounded: 0 where both are rounded alike, and a few roundings of the terms otherwise",
    ),
    # Python code of torch.lu itself (torch/functional.py), the same for every device.
    Exemption("lu", "*", "out", "torch.lu resizes what out= names and copies to it, so it accepts any device's"),
)


def exemption_for(key: tuple[str, str, str], table: Iterable[Exemption] | None = None) -> Exemption | None:
    """The row that covers (op, dtype, variant), if any."""
    return next((row for row in (EXEMPTIONS if table is None else table) if row.matches(key)), None)
