# SPDX-License-Identifier: Apache-2.0
"""Operators that the portable kernels serve, and how that is checked on a chip with a compiler."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
POINTWISE = """
abs acos acosh add addcdiv addcmul asin asinh atan atan2 atanh ceil clamp clamp_max clamp_min copysign cos
cosh deg2rad eq erf erfc exp exp2 expm1 floor fmax fmin fmod frac ge gt heaviside hypot isneginf isposinf
isnan le lerp lgamma log log10 log1p log2 logaddexp logaddexp2 logical_and logical_not logical_or logical_xor
lt masked_fill maximum minimum mul ne neg nextafter nn.functional.elu nn.functional.gelu
nn.functional.hardshrink nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardtanh
nn.functional.leaky_relu nn.functional.mish nn.functional.relu nn.functional.silu nn.functional.softplus
nn.functional.softshrink nn.functional.threshold pow rad2deg reciprocal rsqrt sgn sigmoid sign signbit sin
sinh sqrt sub tan tanh trunc where xlogy
"""
REDUCTIONS = "all amax amin any argmax argmin mean nansum prod std std_mean sum var var_mean linalg.vector_norm"
PRODUCTS = "addmm addmv baddbmm bmm dot inner matmul mm mv nn.functional.linear softmax log_softmax"
INDEXING = """
__getitem__ argwhere bucketize gather index_add index_copy index_fill index_put index_reduce.mean index_reduce.prod
index_select isin masked_scatter masked_select nn.functional.embedding nn.functional.max_unpool2d
nn.functional.max_unpool3d nonzero nonzero_static put repeat_interleave scatter scatter_add scatter_reduce.amin
scatter_reduce.mean scatter_reduce.prod searchsorted take _segment_reduce.lengths _segment_reduce.offsets
"""
POOLING = """
max_pool2d_with_indices_backward nn.functional.adaptive_avg_pool1d nn.functional.adaptive_avg_pool2d
nn.functional.adaptive_avg_pool3d nn.functional.adaptive_max_pool1d nn.functional.adaptive_max_pool2d
nn.functional.adaptive_max_pool3d nn.functional.avg_pool1d nn.functional.avg_pool2d nn.functional.avg_pool3d
nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.max_pool1d
nn.functional.max_pool2d nn.functional.max_pool3d
"""
RESAMPLING = """
_upsample_bilinear2d_aa grid_sampler_2d grid_sampler_3d nn.functional.grid_sample
nn.functional.interpolate.bicubic nn.functional.interpolate.bilinear nn.functional.interpolate.linear
nn.functional.interpolate.nearest nn.functional.interpolate.nearest-exact nn.functional.interpolate.trilinear
"""
GATES_AND_MARGINS = """
nn.functional.ctc_loss nn.functional.glu nn.functional.multi_margin_loss nn.functional.multilabel_margin_loss
"""
NORMS = """
native_batch_norm native_layer_norm nn.functional.batch_norm nn.functional.group_norm nn.functional.instance_norm
nn.functional.layer_norm nn.functional.rms_norm _native_batch_norm_legit _batch_norm_with_update
"""
LOSSES = """
nn.functional.binary_cross_entropy nn.functional.cross_entropy nn.functional.huber_loss nn.functional.mse_loss
nn.functional.nll_loss nn.functional.smooth_l1_loss
"""
SHAPES = """
cat flip roll repeat tile tril triu trace rot90 stack arange linspace logspace eye narrow_copy complex cross
nn.functional.channel_shuffle nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.pad.reflect
nn.functional.pad.replicate nn.functional.pad.replicate_negative nn.functional.unfold nn.functional.fold
"""
SCANS = """
cumsum cumprod cummax cummin logcumsumexp sort argsort msort topk kthvalue median nanmedian mode
"""
MORE = """
addbmm aminmax count_nonzero logsumexp dist nan_to_num round.decimals_3 native_dropout_backward addr cdist renorm
nn.functional.pdist nn.functional.rrelu bernoulli cauchy geometric log_normal normal normal.number_mean
"""
CONVOLUTIONS = """
nn.functional.conv1d nn.functional.conv2d nn.functional.conv3d nn.functional.conv_transpose1d
nn.functional.conv_transpose2d nn.functional.conv_transpose3d
"""
FAMILIES = {
    "pointwise": POINTWISE.split(),
    "reductions": REDUCTIONS.split(),
    "products and softmax": PRODUCTS.split(),
    "indexing": INDEXING.split(),
    "pooling": POOLING.split(),
    "resampling": RESAMPLING.split(),
    "gates and margins": GATES_AND_MARGINS.split(),
    "losses": LOSSES.split(),
    "shapes": SHAPES.split(),
    "scans and sorting": SCANS.split(),
    "more reductions, distances and random numbers": MORE.split(),
    "convolutions": CONVOLUTIONS.split(),
}
FORWARD = "forward,strides,views,method,noncontiguous"


def check(
    names: list[str],
    folder: Path,
    environment: Mapping[str, str],
    dtypes: str,
    variants: str | None = FORWARD,
    policy: str = "deny",
    samples: int = 8,
) -> dict[str, Any]:
    """Run the operator suite in a process of its own; every check must pass. Return its figures."""
    return run(names, folder, environment, dtypes, variants, policy, samples, must_pass=True)


def run(
    names: list[str],
    folder: Path,
    environment: Mapping[str, str],
    dtypes: str,
    variants: str | None = FORWARD,
    policy: str = "deny",
    samples: int = 8,
    must_pass: bool = False,
) -> dict[str, Any]:
    """The same; failures are allowed unless all must pass."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "tests.ops.run", "--ops", ",".join(names), "--policy", policy, "--quiet"]
    command += ["--dtypes", dtypes, "--json", str(report), "--max-samples", str(samples)]
    if variants is not None:
        command += ["--variants", variants]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    assert done.returncode == 0 or (not must_pass and report.exists()), done.stdout[-4000:] + done.stderr[-2000:]
    return dict(json.loads(report.read_text()))
