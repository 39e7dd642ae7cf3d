# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes: `register_backend`, `MemoryAllocator`, `TensorView`. For prototypes.

See docs/python_backend.md. The core sees an ordinary chip (csrc/torch/python_chip.cpp), whose functions call the
`Adapter` of one device.
"""

from torch_fl.chips.python_backend.memory import MemoryAllocator
from torch_fl.chips.python_backend.registering import graph_compilers, register_backend
from torch_fl.chips.python_backend.tensors import TensorView

__all__ = ["MemoryAllocator", "TensorView", "graph_compilers", "register_backend"]
