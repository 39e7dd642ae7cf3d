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
__getitem__ bucketize gather index_add index_fill index_put index_reduce.mean index_select isin masked_scatter
masked_select nn.functional.embedding nn.functional.max_unpool2d nonzero nonzero_static put repeat_interleave
scatter scatter_add scatter_reduce.mean searchsorted take _segment_reduce.lengths
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
_batch_norm_with_update _native_batch_norm_legit native_batch_norm native_layer_norm nn.functional.batch_norm
nn.functional.group_norm nn.functional.instance_norm
nn.functional.layer_norm nn.functional.rms_norm
"""
LOSSES = """
nn.functional.binary_cross_entropy nn.functional.cross_entropy nn.functional.huber_loss nn.functional.mse_loss
nn.functional.nll_loss nn.functional.smooth_l1_loss
"""
SHAPES = """
cat flip roll repeat tile tril triu trace rot90 stack arange linspace logspace eye narrow_copy complex cross
nn.functional.channel_shuffle nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.pad.reflect
nn.functional.pad.replicate nn.functional.pad.replicate_negative nn.functional.unfold nn.functional.fold unfold
"""
SCANS = """
cumsum cumprod cummax cummin logcumsumexp sort argsort msort topk kthvalue median nanmedian mode
"""
MORE = """
addbmm addr aminmax cdist count_nonzero dist hash_tensor logsumexp nan_to_num native_dropout_backward renorm
round.decimals_3
nn.functional.pdist nn.functional.rrelu cauchy geometric log_normal normal normal.number_mean
"""
COMPOSED = """
bernoulli corrcoef cov equal histc histogram histogramdd multinomial unique unique_consecutive
"""
LINEAR_ALGEBRA = """
cholesky_inverse cholesky_solve geqrf linalg.cholesky linalg.det linalg.eig linalg.eigh linalg.eigvals linalg.eigvalsh
linalg.householder_product linalg.inv linalg.ldl_factor linalg.ldl_solve linalg.lu linalg.lu_factor linalg.lu_solve
linalg.qr linalg.slogdet linalg.solve linalg.solve_triangular linalg.svd linalg.svdvals lu_unpack matrix_exp ormqr
triangular_solve
"""
SPECIAL = """
angle digamma erfinv frexp i0 igamma igammac logit nan_to_num polygamma.polygamma_n_0 polygamma.polygamma_n_1
polygamma.polygamma_n_2 polygamma.polygamma_n_3 special.polygamma.special_polygamma_n_0
round.decimals_3 sinc special.airy_ai special.bessel_j0 special.bessel_j1 special.bessel_y0 special.bessel_y1
special.chebyshev_polynomial_t special.chebyshev_polynomial_w special.entr special.erfcx
special.hermite_polynomial_he special.i1 special.i1e special.laguerre_polynomial_l special.log_ndtr
special.modified_bessel_k0 special.modified_bessel_k1 special.ndtri special.scaled_modified_bessel_k1
special.shifted_chebyshev_polynomial_v special.spherical_bessel_j0 special.zeta
"""
TRANSFORMS = "complex polar fft.fft fft.hfft2 fft.ifft2 fft.irfftn fft.rfft2"
COMPLEX = """
abs acos add addcmul addmm angle atanh bmm conj_physical div.no_rounding_mode eq exp log masked_fill mean mul pow prod
reciprocal sgn sqrt sum tanh vdot where fft.fftn fft.irfft
"""
INTEGERS = """
bitwise_left_shift bitwise_right_shift div.floor_rounding div.trunc_rounding floor_divide fmod gcd lcm pow remainder
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
    "composed by the core": COMPOSED.split(),
    "linear algebra": LINEAR_ALGEBRA.split(),
    "special functions": SPECIAL.split(),
    "transforms": TRANSFORMS.split(),
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
