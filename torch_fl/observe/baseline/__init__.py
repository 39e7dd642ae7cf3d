# SPDX-License-Identifier: Apache-2.0
"""The baseline: how fast a chip is, by kernel and end to end. ``run()``, and ``read()`` of what was written."""

from torch_fl.observe.baseline.parsing import BadResults
from torch_fl.observe.baseline.results import CaseResult, Results, Round, Spread, read
from torch_fl.observe.baseline.run import BenchError, Options, Step, run

__all__ = ["BadResults", "BenchError", "CaseResult", "Options", "Results", "Round", "Spread", "Step", "read", "run"]
