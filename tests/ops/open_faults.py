# SPDX-License-Identifier: Apache-2.0
"""Entries with at least one variant (out=, a gradient, a warning's text, ...) that still differs from the CPU.

These are faults to be mended, not exemptions: a name leaves this list with the change that mends it. What differs, and
how often, is printed by `python -m tests.ops.run --ops NAME` (and `--emptiest` for the second list).
"""

_NORMAL = (
    "native_batch_norm native_layer_norm"  # types and sizes of the statistics: PyTorch's shape rule is not the CPU
)
_EMPTIEST = ""

OPEN_FAULTS: dict[str, frozenset[str]] = {
    "normal": frozenset(_NORMAL.split()),
    "emptiest": frozenset(_EMPTIEST.split()),
}
