# SPDX-License-Identifier: Apache-2.0
"""Every sample of PyTorch's OpInfo tables, on whatever kernels of the chip its calls reach: dense and strided outputs."""

from __future__ import annotations

import itertools
import os
import warnings
from typing import Any

import pytest
import torch
from harness import Chip
from replay import Recorder, check_call
from torch.testing._internal.common_methods_invocations import op_db

warnings.filterwarnings("ignore")
SAMPLES = int(os.environ.get("FL_SIM_SAMPLES", "16"))  # of each operator and element type
LOOSE = {torch.float16: (2e-3, 1e-3), torch.bfloat16: (1.6e-2, 1e-2), torch.complex32: (2e-3, 1e-3)}


@pytest.fixture(scope="session")
def chip() -> Chip:
    return Chip()


# The CPU rounds differently from call to call (quotients that are rounded to the narrow type before they are truncated;
# a mean taken from its own value), so there is nothing to compare with.
LOOSER = {("aten::div.Tensor_mode", torch.bfloat16): 1.0, ("aten::div.Tensor_mode", torch.float16): 1.0,
          ("aten::native_layer_norm", torch.float32): 2e-3, ("aten::native_batch_norm", torch.float16): 5e-3,
    ("aten::native_batch_norm", torch.bfloat16): 5e-2}  # fmt: skip


def tolerance(name: str, dtype: torch.dtype) -> dict[str, float]:
    if (name, dtype) in LOOSER:
        return {"rtol": 1e-2, "atol": LOOSER[name, dtype]}
    rtol, atol = LOOSE.get(dtype, (None, None))
    if rtol is None and dtype in (torch.float32, torch.complex64):
        rtol, atol = 1e-5, 2e-5
    return {} if rtol is None else {"rtol": rtol, "atol": atol}


def run_samples(chip: Chip, info: Any, dense: bool) -> dict[str, int]:
    tally: dict[str, int] = {}

    def check(*call: Any) -> None:
        check_call(chip, *call, dense=dense, tally=tally, tolerance=tolerance)

    for dtype in sorted(info.supported_dtypes("cpu"), key=str):
        grad = dtype in info.supported_backward_dtypes("cpu")
        torch.manual_seed(0)
        for sample in itertools.islice(info.sample_inputs("cpu", dtype, requires_grad=grad), SAMPLES):
            with Recorder(chip, check):
                try:
                    out = info(sample.input, *sample.args, **sample.kwargs)
                except AssertionError:
                    raise
                except Exception:
                    continue
                backward(out if isinstance(out, torch.Tensor) else None, grad)
    return tally


def backward(out: torch.Tensor | None, grad: bool) -> None:
    if not grad or out is None or not out.requires_grad:
        return
    try:
        out.backward(torch.ones_like(out))
    except AssertionError:
        raise
    except Exception:
        return


def name_of(info: Any) -> str:
    return "_".join(filter(None, [info.name.replace(".", "_"), info.variant_test_name]))


@pytest.mark.parametrize("dense", [True, False], ids=["dense", "strided"])
@pytest.mark.parametrize("info", op_db, ids=name_of)
def test_op(chip: Chip, info: Any, dense: bool) -> None:
    if not run_samples(chip, info, dense):
        pytest.skip("its calls reach no kernel of the chip")
