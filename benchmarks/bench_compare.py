# SPDX-License-Identifier: Apache-2.0
"""How often `torch-fl compare` is right: 20 pairs of runs of one build, and 20 where one kernel takes 20 % longer.

Runs alternate, so that all see the same machine: A0 B0 B1 A1 A2 B2 ...; A is the build as it is, B the one with a slow
kernel, another one in each repeat. Of one build are A0 and A1, A1 and A2, ... Both have the simulator look for a kernel
to slow (A by 0 %), since looking takes time, too.

python -m benchmarks.bench_compare [--repeats 20] [--processes 8] [--alpha 0.02]
"""

from __future__ import annotations

import dataclasses
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

common.environment(SIMCHIP_THREADS="1", SIMCHIP_INLINE="1")
if TYPE_CHECKING:
    from torch_fl.observe.baseline import Results
    from torch_fl.observe.compare import Comparison

# Kernels as the simulator names them, and the cases that are about them.
KERNELS = {
    "aten::gelu": "operators/gelu",
    "aten::exp": "operators/exp",
    "aten::add.Tensor": "operators/add.Tensor",
    "aten::where.self": "operators/where.self",
    "aten::sum.dim_IntList": "operators/sum.dim_IntList",
    "aten::argmax": "operators/argmax",
    "aten::cumsum": "operators/cumsum",
    "aten::_softmax": "operators/_softmax",
    "aten::native_layer_norm": "operators/native_layer_norm",
    "aten::mm": "operators/mm",
    "aten::bmm": "operators/bmm",
    "aten::convolution": "operators/convolution",
    "aten::max_pool2d_with_indices": "operators/max_pool2d_with_indices",
    "aten::avg_pool2d": "operators/avg_pool2d",
    "aten::index.Tensor": "operators/index.Tensor",
    "aten::gather": "operators/gather",
    "aten::topk": "operators/topk",
    "aten::nll_loss_forward": "operators/nll_loss_forward",
}
# Their calls last 6 and 8 us, of which a fifth is the launch: 20 % of such a kernel is no 20 % of its time.
BYSTANDERS = ("aten::add.Tensor", "aten::sum.dim_IntList")
PERCENT = 20
ROUNDS = 3  # of each process


def measured(kernel: str, percent: int, processes: int) -> Results:
    """One run in the short set, of a build whose kernel takes so much longer."""
    from torch_fl.observe import baseline

    os.environ["SIMCHIP_SLOW_KERNEL"] = f"{kernel}:{percent}"
    short = ",".join(["quick", *KERNELS.values()])
    return baseline.run(set=short, cpu=False, processes=processes, repeats=ROUNDS * processes)


@dataclasses.dataclass
class Score:
    """What is counted."""

    quiet: int = 0  # pairs of one build without any change
    named: int = 0  # the slow kernel is among what is slower
    others: int = 0  # another operator is, too

    def add(self, kernel: str, same: Comparison, slowed: Comparison) -> str:
        """Count a repeat; return what is told of it."""
        from torch_fl.observe.compare import Subject

        found = slowed.regressions(frozenset({Subject.SPEED}))
        hit = any(change.name == KERNELS[kernel] for change in found)
        more = [change.name for change in found if change.op != kernel]
        self.quiet += not same.changes
        self.named += hit
        self.others += bool(more)
        row = next(row for row in slowed.speed.rows if row.name == KERNELS[kernel])
        chance = f"{row.pairs} pairs are too few" if row.p is None else f"p {row.p:.3f}"
        text = f"{kernel} {'named' if hit else 'MISSED'}: {row.ratio - 1:+.1%}, {chance}"
        also = f", also {', '.join(more)}" if more else ""
        return f"same build: {'; '.join(map(str, same.changes)) or 'no change'} | {text}{also}"


def main() -> None:
    options = common.arguments(__doc__, repeats=20, processes=8, alpha=0.02)
    from torch_fl.observe.compare import Options, compare

    judge = Options(alpha=options.alpha)
    names = [name for name in KERNELS if name not in BYSTANDERS]
    before, score, start = measured(names[0], 0, options.processes), Score(), time.monotonic()
    for i in range(options.repeats):
        kernel = names[i % len(names)]
        order = (PERCENT, 0) if i % 2 else (0, PERCENT)
        runs = {percent: measured(kernel, percent, options.processes) for percent in order}
        text = score.add(kernel, compare(before, runs[0], judge), compare(runs[0], runs[PERCENT], judge))
        print(f"{i + 1:3} {time.monotonic() - start:6.0f} s  {text}", flush=True)
        before = runs[0]
    of, least = f"of {options.repeats}", 0.95 * options.repeats
    rows = [
        common.Row("same build: no change", score.quiet, of, least, at_least=True),
        common.Row(f"one kernel +{PERCENT} %: named", score.named, of, least, at_least=True),
        common.Row("... and another operator, too", score.others, of),
    ]
    common.finish("how often compare is right", rows, options)


if __name__ == "__main__":
    main()
