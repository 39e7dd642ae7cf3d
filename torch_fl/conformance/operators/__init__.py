# SPDX-License-Identifier: Apache-2.0
"""Cases for the operators, one module for each family. Importing this package fills the table `OPERATORS`."""

from torch_fl.conformance.operators import (
    attention,
    indexing,
    linalg,
    losses,
    matmul,
    normalization,
    optimizers,
    pointwise,
    pooling,
    random,
    reductions,
    resampling,
    shapes,
    sorting,
)
from torch_fl.conformance.operators.table import OPERATORS, Operator

__all__ = [
    "OPERATORS",
    "Operator",
    "attention",
    "indexing",
    "linalg",
    "losses",
    "matmul",
    "normalization",
    "optimizers",
    "pointwise",
    "pooling",
    "random",
    "reductions",
    "resampling",
    "shapes",
    "sorting",
]
