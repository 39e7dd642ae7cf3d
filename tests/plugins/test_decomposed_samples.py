# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own samples of many operators on a chip with few kernels: what was decomposed agrees with the CPU."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.described import run_described

CODE = """
import warnings
warnings.filterwarnings("ignore")
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

def on(device, tree):
    return _pytree.tree_map_only(torch.Tensor, lambda t: t.detach().to(device), tree)

def samples(info):
    for sample, _ in zip(info.sample_inputs("cpu", torch.float32), range(SAMPLES)):
        yield sample.input, sample.args, sample.kwargs

def compare(info, sample):
    "The operators that were decomposed."
    input, args, kwargs = on("cpu", sample)
    try:
        want = info.op(input, *args, **kwargs)
    except Exception:
        return []
    torch_fl.reset_counters()
    input, args, kwargs = on("fl", sample)
    try:
        got = info.op(input, *args, **kwargs)
    except Exception as error:
        if torch_fl.counters().where(route="decomposed").total().calls:
            raise
        return []  # of operators that no fl device has, with or without decompositions
    rows = [row.name for row in torch_fl.counters().where(route="decomposed") if row.calls]
    if rows:
        torch.testing.assert_close(on("cpu", got), want, rtol=2e-4, atol=2e-5, equal_nan=True)
    return rows

agreed, failed = set(), []
DRAWS = ("dropout", "multi_head_attention")  # numbers of their own on each device
for info in op_db[::STEP]:
    if torch.float32 not in info.dtypes or any(word in info.name for word in DRAWS):
        continue
    for sample in samples(info):
        try:
            agreed.update(compare(info, sample))
        except Exception as error:
            failed.append(f"{info.name}.{info.variant_test_name}: {type(error).__name__}: {error}")
print(json.dumps([sorted(agreed), failed]))
"""


def test_samples_agree(tmp_path: Path) -> None:
    agreed, failed = run_described(tmp_path, CODE.replace("SAMPLES", "2").replace("STEP", "5"))
    assert not failed, "\n".join(failed)
    assert len(agreed) >= 15, agreed
