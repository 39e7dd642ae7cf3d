# SPDX-License-Identifier: Apache-2.0
"""Gather, scatter, index, embedding, masks."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from torch_fl.conformance.operators.table import ALL, FLOATS, INTEGERS, REAL, Call, Generator, add
from torch_fl.conformance.sampler import Sampler

_OPS = torch.ops.aten
_CASES = (((5, 7), 0), ((5, 7), 1), ((3, 4, 5), 1), ((50,), 0))


def _gather(s: Sampler) -> Iterator[Call]:
    for shape, dim in _CASES:
        yield s.tensor(*shape), dim, s.index(shape[dim], *shape)


def _index_select(s: Sampler) -> Iterator[Call]:
    for shape, dim in _CASES:
        yield s.tensor(*shape), dim, s.index(shape[dim], 6)
    yield s.tensor(5, 7), 1, s.index(7, 6, dtype=torch.int32)


def _take(s: Sampler) -> Iterator[Call]:
    for shape, _ in _CASES:
        yield s.tensor(*shape), s.index(torch.Size(shape).numel(), 4, 3)


def _index(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), [s.index(5, 6)]
    yield s.tensor(5, 7), [None, s.index(7, 2, 3)]
    yield s.tensor(5, 7), [s.index(5, 4), s.index(7, 4)]
    yield s.tensor(3, 4, 5), [s.index(3, 2, 1), None, s.index(5, 1, 3)]


def _index_put(s: Sampler) -> Iterator[Call]:
    yield s.tensor(9, 7), [s.permutation(9)[:4]], s.tensor(4, 7)
    yield s.tensor(9, 7), [None, s.permutation(7)[:3]], s.tensor(3)
    if s.dtype != torch.bool:
        yield s.tensor(5, 7), [s.index(5, 20)], s.tensor(20, 7), True, {"terms": 20}


def _put(s: Sampler) -> Iterator[Call]:
    yield s.tensor(5, 7), s.permutation(35)[:6], s.tensor(6)


def _scatter(source: str, *rest: str) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shape, dim in _CASES:
            values = s.tensor(*shape) if source == "tensor" else s.number(2.0)
            named = {"reduce": rest[0], "terms": shape[dim]} if rest else {}
            yield s.tensor(*shape), dim, _once(s, shape, dim), values, named

    return generate


def _once(s: Sampler, shape: tuple[int, ...], dim: int) -> torch.Tensor:
    """An index that names each element of a lane once, so that no order of writing matters."""
    return torch.argsort(s.tensor(*shape, dtype=torch.float64), dim)


def _scatter_add(s: Sampler) -> Iterator[Call]:
    for shape, dim in _CASES:
        yield s.tensor(*shape), dim, s.index(shape[dim], *shape), s.tensor(*shape), {"terms": shape[dim]}


def _scatter_reduce(s: Sampler) -> Iterator[Call]:
    for reduce in ("sum", "prod", "mean", "amax", "amin"):
        for include in (True, False):
            x, values = s.tensor(5, 7, low=1, high=2), s.tensor(5, 7, low=1, high=2)
            yield x, 1, s.index(7, 5, 7), values, reduce, {"include_self": include, "terms": 8}


def _index_add(s: Sampler) -> Iterator[Call]:
    for shape, dim in _CASES:
        source = list(shape)
        source[dim] = 6
        yield s.tensor(*shape), dim, s.index(shape[dim], 6), s.tensor(*source), {"terms": 7}


def _index_copy(s: Sampler) -> Iterator[Call]:
    for shape, dim in _CASES:
        source = list(shape)
        source[dim] = 3
        yield s.tensor(*shape), dim, s.permutation(shape[dim])[:3], s.tensor(*source)


def _index_fill(scalar: bool) -> Generator:
    def generate(s: Sampler) -> Iterator[Call]:
        for shape, dim in _CASES:
            yield s.tensor(*shape), dim, s.index(shape[dim], 3), s.number(2.0) if scalar else s.tensor()

    return generate


def _index_reduce(s: Sampler) -> Iterator[Call]:
    for reduce in ("prod", "mean", "amax", "amin"):
        x, values = s.tensor(5, 7, low=1, high=2), s.tensor(4, 7, low=1, high=2)
        yield x, 0, s.index(5, 4), values, reduce, {"terms": 5}


def _masked(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,), (2, 3, 4)):
        yield s.tensor(*shape), s.tensor(*shape, dtype=torch.bool)


def _masked_scatter(s: Sampler) -> Iterator[Call]:
    for x, mask in _masked(s):
        yield x, mask, s.tensor(x.numel())


def _nonzero(s: Sampler) -> Iterator[Call]:
    for shape in ((5, 7), (33,), (2, 3, 4)):
        yield (s.tensor(*shape, low=-1, high=1),)


def _nonzero_static(s: Sampler) -> Iterator[Call]:
    for size in (4, 50):
        yield s.tensor(5, 7, low=-1, high=1), {"size": size}


def _repeats(s: Sampler) -> Iterator[Call]:
    yield (s.index(4, 9).to(s.dtype),)


_big_gather = lambda s: iter([(s.tensor(1024, 1024), 1, s.index(1024, 1024, 1024))])  # noqa: E731
add("gather", _gather, ALL, _big_gather, exact=True)
add("index_select", _index_select, ALL, lambda s: iter([(s.tensor(1024, 1024), 0, s.index(1024, 1024))]), exact=True)
add("take", _take, ALL, exact=True)
add("index.Tensor", _index, ALL, lambda s: iter([(s.tensor(1024, 1024), [s.index(1024, 1024)])]), exact=True)
add("_index_put_impl_", _index_put, ALL)
add("put", _put, ALL, exact=True)
add("scatter.src", _scatter("tensor"), ALL, exact=True)
add("scatter.value", _scatter("number"), ALL, exact=True)
add("scatter.reduce", _scatter("tensor", "add"), REAL)
add("scatter.value_reduce", _scatter("number", "multiply"), REAL)
add("scatter_add", _scatter_add, ALL)
add("scatter_reduce.two", _scatter_reduce, REAL)
add("index_add", _index_add, ALL)
add("index_copy", _index_copy, ALL, exact=True)
add("index_fill.int_Scalar", _index_fill(True), ALL, exact=True)
add("index_fill.int_Tensor", _index_fill(False), ALL, exact=True)
add("index_reduce", _index_reduce, REAL)
add("masked_select", _masked, ALL, exact=True)
add("masked_scatter", _masked_scatter, ALL, exact=True)
add("nonzero", _nonzero, ALL, exact=True)
add("nonzero_static", _nonzero_static, ALL, exact=True)
add("repeat_interleave.Tensor", _repeats, INTEGERS[:2], exact=True)


# ---- embeddings -------------------------------------------------------------------------------------------------


def _embedding(s: Sampler) -> Iterator[Call]:
    for shape in ((4,), (3, 5)):
        yield s.tensor(10, 6), s.index(10, *shape)
    yield s.tensor(10, 6), s.index(10, 4, dtype=torch.int32), 2


def _embedding_backward(s: Sampler) -> Iterator[Call]:
    for by_frequency in (False, True):
        yield s.tensor(3, 5, 6), s.index(10, 3, 5), 10, 2, by_frequency, {"terms": 15}


def _bags(s: Sampler) -> Iterator[Call]:
    for mode in (0, 1, 2):
        weighted = s.tensor(9, low=0.5, high=2) if mode == 0 else None
        arguments = (s.distinct(10, 6), s.index(10, 9), torch.tensor([0, 3, 7]))
        yield (*arguments, False, mode, False, weighted, False, -1, {"terms": 9})


def _bags_backward(s: Sampler) -> Iterator[Call]:
    for _, indices, offsets, *_ in _bags(s):
        for mode in (0, 1):  # the bags' sizes stand in for the places of largest elements, which these modes lack
            bag, sizes = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2]), torch.tensor([3, 4, 2])
            arguments = (s.tensor(3, 6), indices, offsets, bag, sizes, sizes, 10, False, mode, False, None)
            yield (*arguments, {"terms": 9})


def _bags_dense_backward(s: Sampler) -> Iterator[Call]:
    for grad, indices, _, bag, sizes, most, count, scale, mode, _, weights, named in _bags_backward(s):
        yield grad, indices, bag, sizes, most, count, scale, mode, weights, named


def _bags_weights_backward(s: Sampler) -> Iterator[Call]:
    weight, indices, offsets = s.tensor(10, 6), s.index(10, 9), torch.tensor([0, 3, 7])
    bag = torch.tensor([0, 0, 0, 1, 1, 1, 1, 2, 2])
    yield s.tensor(3, 6), weight, indices, offsets, bag, 0, {"terms": 6}


def _renorm_embedding(s: Sampler) -> Iterator[Call]:
    yield s.tensor(10, 6), s.index(10, 5), 1.0, 2.0, {"terms": 6}


def _segments(s: Sampler) -> Iterator[Call]:
    for reduce in ("sum", "mean", "max", "min", "prod"):
        yield s.tensor(9, 4, low=0.5, high=2), reduce, {"lengths": torch.tensor([2, 3, 4]), "terms": 4}


def _segments_backward(s: Sampler) -> Iterator[Call]:
    for data, reduce, named in _segments(s):
        output = _OPS.segment_reduce(data, reduce, lengths=named["lengths"])
        yield s.tensor(3, 4), output, data, reduce, named


_big_table = lambda s: iter([(s.tensor(10_000, 256), s.index(10_000, 4096))])  # noqa: E731
add("embedding", _embedding, FLOATS, _big_table, exact=True)
add("embedding_dense_backward", _embedding_backward, FLOATS)
# Of the auxiliary outputs only the largest elements' places are defined, and only in mode max.
add("_embedding_bag _embedding_bag_forward_only", _bags, FLOATS, ignore=[1, 2, 3])
add("_embedding_bag_backward", _bags_backward, FLOATS)
add("_embedding_bag_dense_backward", _bags_dense_backward, FLOATS)
add("_embedding_bag_per_sample_weights_backward", _bags_weights_backward, FLOATS)
add("embedding_renorm_", _renorm_embedding, FLOATS, roundings=16)
add("segment_reduce", _segments, FLOATS)
add("_segment_reduce_backward", _segments_backward, FLOATS, roundings=16)
