# SPDX-License-Identifier: Apache-2.0
"""Our own shape rules against the CPU: dtype, sizes and strides of what each operator really gives.

PyTorch's own samples are run on the CPU, forward and backward. Of every operator that is called on the way, the rule is
asked about the same arguments; it may say that it does not know, but not anything else than what comes out.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from tests.harness import device

torch_fl = device.load()
pytestmark = pytest.mark.skipif(torch_fl is None, reason="a stock device has no shape rules")

# Factories are ruled through their out= forms.
FACTORIES = {
    "aten::arange.start_out": "aten::arange.start_step",
    "aten::linspace.out": "aten::linspace",
    "aten::eye.out": "aten::eye",
    "aten::eye.m_out": "aten::eye.m",
}
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64)
SAMPLES = 4
SKIPPED = ("linalg", "fft.", "signal.", "sparse.", "masked.")  # slow, and made of operators that others reach
UNRELATED = 2  # an operator whose first samples reach no rule is left alone


@functools.cache
def _rules() -> frozenset[str]:
    from torch_fl import _C

    return frozenset(_C.shape_rules())


def _metadata(result: Any) -> list[tuple[Any, ...] | None]:
    results = result if isinstance(result, (tuple, list)) else (result,)
    return [None if t is None else (t.dtype, tuple(t.shape), _strides(t)) for t in results]


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Strides of the dimensions that have more than one element: only those can be observed."""
    if tensor.numel() == 0:
        return ()
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)


class Watch(TorchDispatchMode):
    """Runs operators, and compares the rule of each with what it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.known: dict[str, int] = {}
        self.wrong: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = str(func.name())
        rule = FACTORIES.get(name, name)
        if rule not in _rules() or not all(type(t) in (torch.Tensor, torch.nn.Parameter) for t in _tensors(args)):
            return func(*args, **kwargs)
        self.asked += 1
        predicted = self._ask(name, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception as error:
            if predicted is not None and "out of" not in str(error):  # values may be refused; shapes and types may not
                self.wrong.append(f"{name}: accepted {_describe(args)}, which the CPU refuses: {error}"[:400])
            raise
        if predicted is not None:
            self.known[rule] = self.known.get(rule, 0) + 1
            if _metadata(predicted) != _metadata(result):
                self.wrong.append(
                    f"{name}{_describe(args)}: ruled {_metadata(predicted)}, the CPU gave {_metadata(result)}"
                )
        return result

    def _ask(self, name: str, args: Any, kwargs: Any) -> list[torch.Tensor | None] | None:
        from torch_fl import _C

        operator, _, overload = name.partition(".")
        try:
            return _C.shape_rule(operator, overload, *args, **kwargs)
        except (RuntimeError, IndexError, ValueError):
            return None  # refuses the call, as the CPU must


def _tensors(args: Any) -> Iterator[torch.Tensor]:
    for arg in args:
        if isinstance(arg, torch.Tensor):
            yield arg
        elif isinstance(arg, (list, tuple)):
            yield from _tensors(arg)


def _describe(args: Any) -> str:
    return str([(a.dtype, tuple(a.shape), a.stride()) if isinstance(a, torch.Tensor) else a for a in args])


def _is_plain(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout == torch.strided


def _channels_last(value: Any) -> Any:
    if not _is_plain(value) or value.dim() not in (4, 5):
        return value
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return value.detach().contiguous(memory_format=formats[value.dim()]).requires_grad_(value.requires_grad)


def _gapped(value: Any) -> Any:
    """Every second element of something larger, dimensions stored the other way round."""
    if not _is_plain(value) or value.dim() < 2:
        return value
    data = value.detach()
    wide = torch.empty((*reversed(data.shape[1:]), data.shape[0], 2), dtype=data.dtype)[..., 0]
    wide = wide.permute(*reversed(range(wide.dim()))).copy_(data)
    return wide.requires_grad_(value.requires_grad)


LAYOUTS: tuple[Callable[[Any], Any], ...] = (lambda value: value, _channels_last, _gapped)


def _run(function: Callable[..., Any], sample: Any, layout: Callable[[Any], Any]) -> None:
    sample = sample.transform(layout)
    try:
        output = function(sample.input, *sample.args, **sample.kwargs)
        outputs = [o for o in (output if isinstance(output, (tuple, list)) else (output,)) if _differentiable(o)]
        if outputs:
            torch.autograd.backward(outputs, [torch.ones_like(o) for o in outputs])
    except Exception:
        return  # whether samples are legal in each layout is not the question here


def _differentiable(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _samples(op: Any, dtype: torch.dtype) -> Iterator[Any]:
    floating = dtype.is_floating_point or dtype.is_complex
    for _, sample in zip(range(SAMPLES), op.sample_inputs("cpu", dtype, requires_grad=floating)):
        yield sample
    for error in op.error_inputs("cpu") if op.error_inputs_func is not None and dtype == torch.float32 else ():
        yield error.sample_input


def _watch_samples(watch: Watch) -> None:
    from tests.ops import catalogue

    for op in catalogue.ops():
        if op.name.startswith(SKIPPED):
            continue
        asked = watch.asked
        for dtype in DTYPES:
            if dtype not in op.dtypes:
                continue
            for number, sample in enumerate(_samples(op, dtype)):
                if number == UNRELATED and watch.asked == asked:
                    break
                for layout in LAYOUTS:
                    with watch:
                        _run(op.op, sample, layout)
            if watch.asked == asked:
                break


def _image(*shape: int) -> torch.Tensor:
    return torch.randn(shape, requires_grad=True)


def _watch_cases(watch: Watch) -> None:
    """What PyTorch's samples do not reach."""
    weight, statistics = torch.ones(4), [torch.zeros(4), torch.ones(4)]
    bits, by = torch.tensor([[1, 2], [3, 4]]), torch.tensor([1, 2], dtype=torch.int32)
    cases: list[Callable[[], Any]] = [
        lambda: torch.ops.aten.__lshift__.Tensor(bits, by),
        lambda: torch.ops.aten.__rshift__.Tensor(bits.t(), by),
    ]
    for layout in LAYOUTS:
        for half in (False, True):
            x = layout(_image(2, 4, 5, 6))
            x = x.detach().bfloat16().requires_grad_() if half else x
            for training in (True, False):
                cases.append(lambda x=x, t=training: F.batch_norm(x, *statistics, weight, weight, training=t))
            cases += [
                lambda x=x: F.batch_norm(x, None, None, training=True),
                lambda x=x: F.layer_norm(x, (6,), torch.ones(6, requires_grad=True), torch.ones(6)),
                lambda x=x: F.group_norm(x, 2, weight.clone().requires_grad_(), weight),
                lambda x=x: torch.native_dropout(x, 0.5, True)[0],
                lambda x=x: torch.ops.aten._native_batch_norm_legit.no_stats(x, weight, None, True, 0.1, 1e-5)[0],
                lambda x=x: F.adaptive_avg_pool2d(x, 3),
                lambda x=x: F.pad(x, (1, 2, 2, 1), "reflect"),
                lambda x=x: F.pad(x[0], (1, 2, 2, 1), "reflect"),
                lambda x=x: F.pad(x, (1, 2, 2, 1), "replicate"),
                lambda x=x: torch.ops.aten.count_nonzero.dim_IntList(x, [0, 1]),
            ]
        volume, planes, rows = layout(_image(2, 4, 4, 5, 6)), layout(_image(4, 4, 5, 6)), layout(_image(3, 4))
        cases += [
            lambda x=volume: F.max_pool3d(x, 2, return_indices=True)[0],
            lambda x=volume: F.adaptive_avg_pool3d(x, 2),
            lambda x=volume: F.batch_norm(x, None, None, training=True),
            lambda x=volume: F.pad(x, (1, 2, 2, 1, 0, 1), "replicate"),
            lambda x=planes: F.pad(x, (1, 2, 2, 1, 0, 1), "replicate"),
            lambda x=rows: F.batch_norm(x, None, None, weight, training=True),
            lambda x=rows: torch.isin(2.0, x),
        ]
    for dtype in (torch.int64, torch.int32, torch.float32, torch.float64, torch.bfloat16):
        for start, end, step in ((0, 5, 1), (0, 5, 2), (5, 0, -2), (1, 1, 1), (-3.7, 3.2, 1), (0.5, 4.2, 1.3)):
            cases.append(lambda a=start, b=end, c=step, d=dtype: torch.arange(a, b, c, out=torch.empty(0, dtype=d)))
        cases.append(lambda d=dtype: torch.linspace(0, 1, 7, out=torch.empty(0, dtype=d)))
        cases += [lambda d=dtype, n=n: torch.eye(*n, out=torch.empty(0, dtype=d)) for n in ((3,), (0,), (2, 5))]
    for batch in ((), (2,)):
        for m, n in ((5, 3), (3, 5), (4, 4), (0, 3), (3, 0)):
            square = torch.randn(*batch, n, n)
            cases += [lambda a=square: torch.linalg.eig(a), lambda a=square: torch.ops.aten._linalg_eigvals(a)]
            matrix, vector, sides = torch.randn(*batch, m, n), torch.randn(*batch, m), torch.randn(*batch, m, 2)
            cases.append(lambda a=matrix: torch.geqrf(a))
            for driver in (None, "gels", "gelsy", "gelss"):
                cases += [lambda a=matrix, b=b, d=driver: torch.linalg.lstsq(a, b, driver=d) for b in (vector, sides)]
    for length in (5, 1):
        for dtype in (torch.float32, torch.bfloat16):
            q, k = torch.randn(2, length, 3, 8, dtype=dtype), torch.randn(2, 3, 7, 8, dtype=dtype)
            for query in (q.transpose(1, 2), q.transpose(1, 2).contiguous()):
                query = query.detach().requires_grad_()
                cases.append(
                    lambda q=query, k=k: torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, k)[0]
                )
    for case in cases:
        with watch:
            output = case()
            if _differentiable(output):
                output.sum().backward()


@pytest.fixture(scope="module")
def watch() -> Watch:
    made = Watch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _watch_cases(made)
        _watch_samples(made)
    return made


def test_rules_give_what_the_cpu_gives(watch: Watch) -> None:
    assert not watch.wrong, f"{len(watch.wrong)} wrong:\n" + "\n".join(sorted(set(watch.wrong))[:40])


def test_every_rule_was_compared(watch: Watch) -> None:
    assert _rules() - set(watch.known) == set()


def test_rules_know_calls_of_every_layout() -> None:
    """A rule that never knows would pass the comparison: these calls must be known."""
    from torch_fl import _C

    x = torch.randn(2, 4, 5, 6)
    for layout in LAYOUTS:
        y = layout(x)
        assert _C.shape_rule("aten::relu", "", y) is not None
        assert _C.shape_rule("aten::native_layer_norm", "", y, [6], None, None, 1e-5) is not None
        assert _C.shape_rule("aten::where", "self", y > 0, y, x[0]) is not None
    assert _C.shape_rule("aten::relu", "", x > 0) is None
    assert _C.shape_rule("aten::add", "Tensor", x, x) is None  # PyTorch has a C++ meta function
