# SPDX-License-Identifier: Apache-2.0
"""Entries with at least one variant (out=, a gradient, a warning's text, ...) that still differs from the CPU.

The first list is the union of two runs: 17 of its names passed in the second. Four of the second list (fft.ifft,
fft.ihfft, new_empty_strided, xlogy) are there because they failed in the first mode and may vary.

These are faults to be mended, not exemptions: a name leaves this list with the change that mends it. What differs, and
how often, is printed by `python -m tests.ops.run --ops NAME` (and `--emptiest` for the second list).
"""

_NORMAL = """
    H abs add addr arange as_strided_copy as_strided_scatter bernoulli complex conj conj_physical cummax cummin
    div.trunc_rounding fft.ifft fft.ihfft floor_divide fmod linalg.householder_product linspace
    linspace.tensor_overload log_softmax logical_and logical_not logical_or logical_xor lu mH masked.log_softmax
    masked_fill max.reduction_no_dim min.reduction_no_dim mode module:nn.GroupNorm module:nn.SoftMarginLoss msort mul
    nan_to_num native_batch_norm native_layer_norm new_empty_strided nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.batch_norm
    nn.functional.binary_cross_entropy nn.functional.conv_transpose2d nn.functional.conv_transpose3d
    nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu nn.functional.instance_norm
    nn.functional.layer_norm nn.functional.linear_cross_entropy.chunked nn.functional.linear_cross_entropy.chunked_none
    nn.functional.logsigmoid nn.functional.mse_loss nn.functional.normalize nn.functional.pad.reflect
    nn.functional.pad.replicate nn.functional.pad.replicate_negative nn.functional.scaled_dot_product_attention
    nn.functional.soft_margin_loss optimizer:Adam optimizer:AdamW optimizer:LBFGS reciprocal rsqrt softmax sort take
    xlogy
"""

_EMPTIEST = """
    addr as_strided_copy as_strided_scatter bernoulli fft.ifft fft.ihfft lu module:nn.GroupNorm native_group_norm
    new_empty_strided nn.functional.group_norm nn.functional.linear_cross_entropy.chunked
    nn.functional.linear_cross_entropy.chunked_none optimizer:Adam optimizer:AdamW xlogy
"""

OPEN_FAULTS: dict[str, frozenset[str]] = {
    "normal": frozenset(_NORMAL.split()),
    "emptiest": frozenset(_EMPTIEST.split()),
}
