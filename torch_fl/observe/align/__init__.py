# SPDX-License-Identifier: Apache-2.0
"""Precision alignment: a model on a chip against the same model on the CPU, layer by layer and op by op."""

from torch_fl.observe.align.judge import Accuracy, Verdict
from torch_fl.observe.align.layers import Layer
from torch_fl.observe.align.operators import Op
from torch_fl.observe.align.result import AlignReport, PrecisionChange
from torch_fl.observe.align.run import align

__all__ = ["Accuracy", "AlignReport", "Layer", "Op", "PrecisionChange", "Verdict", "align"]
