# SPDX-License-Identifier: Apache-2.0
"""Portable kernels on every OpenCL device, under PyTorch, with the host forbidden."""

from __future__ import annotations

import os
import pathlib

import pytest
from opencl_chips import EXPECTED, MISSING

LIBRARY = os.environ.get("FL_OPENCL_LIBRARY", "")
NAMES = """add addcmul clamp exp gt mul neg nn.functional.gelu nn.functional.relu rsqrt sigmoid tanh where amax argmax
any mean sum var addmm bmm mm softmax log_softmax gather index_add index_put index_select nonzero
scatter_reduce.mean searchsorted nn.functional.avg_pool2d nn.functional.adaptive_avg_pool2d
nn.functional.max_pool2d nn.functional.interpolate.bilinear nn.functional.interpolate.nearest
grid_sampler_2d nn.functional.ctc_loss nn.functional.glu nn.functional.multi_margin_loss
nn.functional.layer_norm nn.functional.group_norm nn.functional.nll_loss nn.functional.mse_loss cat roll
tril arange nn.functional.pad.reflect cumsum cummax sort topk mode cdist linalg.solve linalg.qr linalg.eigh
linalg.svd digamma erfinv igamma special.bessel_y1 frexp fft.fft fft.irfft2 polar nn.functional.conv2d
nn.functional.conv_transpose2d""".split()
PLATFORMS = {"pocl": "Portable Computing Language", "intel": "Intel(R) OpenCL"}


@pytest.mark.parametrize("runtime", EXPECTED)
@pytest.mark.parametrize("memory", ["svm", "buffer"])
def test_portable_kernels_agree_with_the_cpu(
    runtime: str, memory: str, tmp_path: pathlib.Path, kernel_cache: str
) -> None:
    pytest.importorskip("torch")
    portable = pytest.importorskip("tests.ops.portable")
    if runtime in MISSING:
        pytest.skip(MISSING[runtime])
    environment = {
        "TORCH_FL_PLUGIN_PATH": LIBRARY,
        "TORCH_FL_OPENCL_DEVICES": PLATFORMS[runtime],
        "TORCH_FL_OPENCL_MEMORY": memory,
        "TORCH_FL_CACHE_DIR": kernel_cache,
    }
    names = NAMES if memory == "svm" else NAMES[:4] + ["sum", "mm", "index_put", "cat", "roll", "cumsum", "sort"]
    portable.check(names, tmp_path, environment, "float32", variants="forward,noncontiguous", samples=2)
