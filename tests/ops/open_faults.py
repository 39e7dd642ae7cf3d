# SPDX-License-Identifier: Apache-2.0
"""Entries with at least one variant (out=, a gradient, a warning's text, ...) that still differs from the CPU.

These are faults to be mended, not exemptions: a name leaves this list with the change that mends it. What differs, and
how often, is printed by `python -m tests.ops.run --ops NAME` (and `--emptiest` for the second list).
"""

_NORMAL = """
    H abs add addr arange as_strided_copy as_strided_scatter bernoulli complex conj conj_physical cummax cummin
    div.trunc_rounding fft.ifft fft.ihfft floor_divide fmod linalg.householder_product linspace
    linspace.tensor_overload log_softmax logical_and logical_not logical_or logical_xor lu mH masked.log_softmax
    masked_fill max.reduction_no_dim min.reduction_no_dim mode module:nn.GroupNorm module:nn.SoftMarginLoss msort
    mul nan_to_num native_batch_norm native_layer_norm new_empty_strided nn.functional.adaptive_avg_pool1d
    nn.functional.adaptive_avg_pool2d nn.functional.avg_pool2d nn.functional.avg_pool3d nn.functional.batch_norm
    nn.functional.binary_cross_entropy nn.functional.conv_transpose2d nn.functional.conv_transpose3d
    nn.functional.cross_entropy nn.functional.embedding nn.functional.gelu nn.functional.instance_norm
    nn.functional.layer_norm nn.functional.linear_cross_entropy.chunked
    nn.functional.linear_cross_entropy.chunked_none nn.functional.logsigmoid nn.functional.mse_loss
    nn.functional.normalize nn.functional.pad.reflect nn.functional.pad.replicate
    nn.functional.pad.replicate_negative nn.functional.scaled_dot_product_attention nn.functional.soft_margin_loss
    optimizer:Adam optimizer:AdamW optimizer:LBFGS reciprocal rsqrt softmax sort take xlogy
"""

_EMPTIEST = """
    H T __getitem__ __radd__ __rdiv__ __rmatmul__ __rmul__ __rpow__ __rsub__ _unsafe_masked_index
    _unsafe_masked_index_put_accumulate abs acos acosh add addbmm addcdiv addcmul addmv addr alias_copy all
    allclose angle any argwhere as_strided as_strided.partial_views as_strided_copy as_strided_scatter asin asinh
    atan atanh atleast_1d atleast_2d atleast_3d bernoulli bfloat16 block_diag bool broadcast_tensors broadcast_to
    byte cartesian_prod cdouble cfloat chalf char cholesky chunk clone combinations conj conj_physical
    constant_pad_nd contiguous corrcoef cos cosh count_nonzero cov cross cumprod cumsum cumulative_trapezoid diag
    diag_embed diagflat diagonal diagonal_copy diagonal_scatter diff dist div.no_rounding_mode dot double dsplit eq
    equal exp exp2 expand expand_as expand_copy expm1 fft.fft fft.fft2 fft.fftn fft.fftshift fft.hfft fft.hfft2
    fft.hfftn fft.ifft fft.ifft2 fft.ifftn fft.ifftshift fft.ihfft fft.irfft fft.irfft2 fft.irfftn fill flatten
    flip fliplr flipud float float_power gather geqrf gradient half hsplit index_add index_copy index_fill
    index_put index_select inner int isclose isinf isnan istft item kron ldexp lerp linalg.cholesky
    linalg.cholesky_ex linalg.cond linalg.cross linalg.diagonal linalg.eig linalg.eigh linalg.eigvals
    linalg.eigvalsh linalg.householder_product linalg.inv linalg.inv_ex linalg.ldl_factor linalg.ldl_factor_ex
    linalg.ldl_solve linalg.lstsq linalg.lstsq.grad_oriented linalg.lu linalg.lu_factor linalg.lu_factor_ex
    linalg.lu_solve linalg.matrix_norm linalg.matrix_power linalg.matrix_rank linalg.matrix_rank.hermitian
    linalg.norm linalg.norm.subgradients_at_zero linalg.pinv linalg.pinv.hermitian linalg.pinv.singular linalg.qr
    linalg.slogdet linalg.solve linalg.solve_ex linalg.svdvals linalg.tensorinv linalg.tensorsolve linalg.vander
    linalg.vecdot linalg.vector_norm log log10 log1p log2 log_softmax.with_dtype logaddexp logcumsumexp logdet
    logical_and logical_not logical_or logical_xor logsumexp long lu lu_solve lu_unpack mH mT masked.cumprod
    masked.cumsum masked.logsumexp masked.mean masked.normalize masked.prod masked.std masked.sum masked.var
    masked_fill masked_scatter masked_select matmul matrix_exp mean meshgrid.variadic_tensors mode
    module:nn.GroupNorm movedim mul mv narrow narrow_copy native_group_norm ne neg new_empty new_empty_strided
    new_full new_ones new_zeros nn.functional.channel_shuffle nn.functional.conv1d nn.functional.conv2d
    nn.functional.conv3d nn.functional.conv_transpose1d nn.functional.conv_transpose2d
    nn.functional.conv_transpose3d nn.functional.feature_alpha_dropout.without_train nn.functional.group_norm
    nn.functional.l1_loss nn.functional.linear_cross_entropy.chunked
    nn.functional.linear_cross_entropy.chunked_none nn.functional.normalize nn.functional.pad.constant
    nn.functional.pad.reflect nn.functional.pad.replicate nn.functional.pad.replicate_negative
    nn.functional.pairwise_distance nn.functional.pixel_shuffle nn.functional.pixel_unshuffle
    nn.functional.rms_norm nn.functional.silu.complex nn.functional.softmin.with_dtype nn.functional.softsign
    nn.functional.tanhshrink nn.functional.triplet_margin_loss nn.functional.triplet_margin_with_distance_loss
    nonzero nonzero_static norm norm.fro norm.inf norm.nuc normal.in_place ones_like optimizer:ASGD
    optimizer:Adadelta optimizer:Adagrad optimizer:Adam optimizer:AdamW optimizer:Adamax optimizer:LBFGS
    optimizer:NAdam optimizer:RAdam optimizer:RMSprop optimizer:Rprop optimizer:SGD ormqr outer pca_lowrank permute
    permute_copy pinverse polar positive pow prod put qr rand_like randn_like ravel reciprocal renorm repeat
    repeat_interleave reshape reshape_as resize_ resize_as_ resolve_conj resolve_neg rot90 rsqrt rsub scatter
    scatter_add select sgn short sigmoid sin sinc sinh slice softmax.with_dtype split split.list_args
    split_with_sizes split_with_sizes_copy sqrt square squeeze squeeze.multiple squeeze_copy std std.unbiased
    std_mean std_mean.unbiased stft sub sum sum_to_size svd svd_lowrank t t_copy take take_along_dim tan tanh
    tensor_split tile to trace transpose transpose_copy trapezoid trapz triangular_solve tril triu true_divide
    unbind unbind_copy unflatten unfold unfold_copy uniform unsafe_chunk unsafe_split unsqueeze unsqueeze_copy var
    var.unbiased var_mean var_mean.unbiased vdot view view_as view_copy vsplit where zero_ zeros_like
"""

OPEN_FAULTS: dict[str, frozenset[str]] = {
    "normal": frozenset(_NORMAL.split()),
    "emptiest": frozenset(_EMPTIEST.split()),
}
