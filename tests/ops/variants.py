# SPDX-License-Identifier: Apache-2.0
"""In-place and out= forms of a call, compared with the CPU's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from tests.harness import compare
from tests.harness.compare import Mismatch
from tests.harness.trees import tensors_of
from tests.ops import gauge, ties
from tests.ops.tolerances import for_cast_results

if TYPE_CHECKING:
    from tests.ops.engine import Arguments, PairCheck, Reference

_Outs = list[torch.Tensor]


def _attempt(function: Callable[[], Any]) -> tuple[Any, Exception | None]:
    try:
        return function(), None
    except Exception as error:
        return None, error


def _draws(function: Callable[..., Any], arguments: Arguments, reference: Arguments) -> bool:
    """Does a function that seeds itself give something else with another seed?"""
    from tests.ops.engine import differ, other_seeds, seeds_itself

    if not seeds_itself(function):
        return False
    again = arguments.to("cpu")
    with other_seeds():
        _attempt(lambda: again.apply(function))
    return differ(again.tree, reference.tree)


def check_inplace(pair: PairCheck, arguments: Arguments) -> None:
    """The in-place form changes its first argument, in its own memory, or raises what the CPU raises."""
    from tests.ops.engine import check_same_error

    function = pair.op.inplace_variant
    reference, device = arguments.to("cpu"), arguments.to(pair.options.device)
    before = torch.default_generator.get_state()
    expected, expected_error = _attempt(lambda: reference.apply(function))
    random = not torch.equal(before, torch.default_generator.get_state()) or _draws(function, arguments, reference)
    owner = compare.storage_id(device.input)
    found, error = _attempt(lambda: pair.options.call(function, device.input, *device.args, **device.kwargs))
    check_same_error(error, expected_error)
    if expected_error is not None:
        return
    if (found is device.input) != (expected is reference.input):
        raise Mismatch("the in-place form returned another object than its argument")
    if compare.storage_id(device.input) != owner:
        raise Mismatch("the in-place form moved its argument to other memory")
    values = not random and pair.op.name not in ("resize_", "resize_as_")
    found_arguments, expected_arguments = list(tensors_of(device.tree)), list(tensors_of(reference.tree))
    compare.check_tree(found_arguments, expected_arguments, pair.tolerances, values, at="argument afterwards: ")


# ---- out= -------------------------------------------------------------------------------------------------------


def _filled(shape: Any, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of recognisable contents that are no plausible result."""
    return torch.ones(shape, dtype=torch.uint8).to(dtype)


def _exact(tensor: torch.Tensor) -> torch.Tensor:
    return _filled(tensor.shape, tensor.dtype)


def _strided(tensor: torch.Tensor) -> torch.Tensor:
    """Dimensions stored in reverse order."""
    return _filled(tuple(reversed(tensor.shape)), tensor.dtype).permute(tuple(reversed(range(tensor.dim()))))


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    return _filled((0,), tensor.dtype)


def _larger(tensor: torch.Tensor) -> torch.Tensor:
    return _filled((*tensor.shape, 2), tensor.dtype)


def _typed(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: _filled(tensor.shape, dtype)


# What is passed as out=, and how it is made from the expected result.
_OUT_CASES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exact": _exact,
    "strided": _strided,
    "empty": _empty,
    "larger": _larger,
    "int64": _typed(torch.int64),
    "complex128": _typed(torch.complex128),
    "float32": _typed(torch.float32),
}


def check_out(pair: PairCheck, arguments: Arguments, expected: Reference) -> None:
    """out= of the right and of wrong sizes, strides and types; on another device it is refused."""
    results = _result_tensors(expected.output)
    if not results:
        return
    for case, make in _OUT_CASES.items():
        outs = [make(tensor) for tensor in results]
        pair.recorder.check(
            "out", (case, *arguments.tree), lambda o=outs, c=case: _check_case(pair, arguments, expected, o, c)
        )
    if any(True for _ in filter(lambda t: t.numel() > 0, results)) and torch.device(pair.options.device).type != "cpu":
        outs = [_exact(tensor) for tensor in results]
        pair.recorder.check(
            "out", ("on cpu", *arguments.tree), lambda: _check_other_device(pair, arguments, expected, outs)
        )


def _result_tensors(output: Any) -> _Outs:
    """The tensors that out= would receive; none when the result is something else."""
    items = [output] if isinstance(output, torch.Tensor) else list(output) if isinstance(output, (tuple, list)) else []
    plain = all(isinstance(item, torch.Tensor) and item.layout == torch.strided for item in items)
    return items if plain else []


def _as_out(outs: _Outs, output: Any) -> Any:
    return outs[0] if isinstance(output, torch.Tensor) else tuple(outs)


def _call_with_out(
    pair: PairCheck, arguments: Arguments, outs: Any, on_device: bool
) -> tuple[Any, Exception | None, list[str]]:
    """Result, exception and the texts of resize warnings."""
    call = pair.options.call if on_device else lambda function, *args, **kwargs: function(*args, **kwargs)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        extra = {**arguments.kwargs, "out": outs}
        result, error = _attempt(lambda: call(pair.op.op, arguments.input, *arguments.args, **extra))
    texts = [str(item.message).split("(Triggered")[0] for item in seen if "resized" in str(item.message)]
    return result, error, texts


def _check_case(pair: PairCheck, arguments: Arguments, expected: Reference, outs: _Outs, case: str) -> None:
    from tests.harness.trees import Mover
    from tests.ops.engine import check_same_error

    reference, device = arguments.to("cpu"), arguments.to(pair.options.device)
    device_outs = Mover(pair.options.device).move(outs)
    pointers = [out.data_ptr() for out in device_outs]
    _, expected_error, expected_warnings = _call_with_out(pair, reference, _as_out(outs, expected.output), False)
    result, error, texts = _call_with_out(pair, device, _as_out(device_outs, expected.output), True)
    check_same_error(error, expected_error)
    if expected_error is not None:
        return
    if sorted(set(texts)) != sorted(set(expected_warnings)):
        raise Mismatch(f"resize warnings: expected {expected_warnings!r:.150}, found {texts!r:.150}")
    if isinstance(result, torch.Tensor) and result is not device_outs[0]:
        raise Mismatch("the returned tensor is not the one given as out=")
    _check_written(pair, expected, device_outs, outs, case)
    compare.check_strides(device_outs, outs)
    if case in ("exact", "strided") and [out.data_ptr() for out in device_outs] != pointers:
        raise Mismatch("out= of the right size was moved to other memory")


def _check_written(pair: PairCheck, expected: Reference, found: _Outs, wanted: _Outs, case: str) -> None:
    """The out= tensors hold what the CPU's hold."""
    results = _result_tensors(expected.output)
    inexact = [t.dtype for t in results if t.is_floating_point() or t.is_complex()]
    # Of integers, floating-point results are computed in their own type before they are cast.
    computed = pair.dtype if pair.dtype.is_floating_point or pair.dtype.is_complex or not inexact else inexact[0]
    tolerances = for_cast_results(pair.tolerances, computed)
    ours = ties.settle(
        pair.op.name, expected.arguments, _as_out(found, expected.output), _as_out(wanted, expected.output)
    )
    ours = gauge.settle(pair.op.name, expected.arguments, ours, _as_out(wanted, expected.output))

    def check(theirs: _Outs) -> None:
        place = {id(tensor): result for tensor, result in zip(theirs, results, strict=True)}
        values, device = pair.has_values(expected), pair.options.device
        compare.check_tree(
            ours,
            _as_out(theirs, expected.output),
            tolerances,
            values,
            device,
            "out ",
            lambda tensor: expected.exact(place[id(tensor)]),
        )

    try:
        check(wanted)
    except Mismatch:
        # Some CPU kernels fill a strided out= as if it were dense, or not at all: what they return is right.
        if case != "strided":
            raise
        check(results)


def _check_other_device(pair: PairCheck, arguments: Arguments, expected: Reference, outs: _Outs) -> None:
    if not arguments.on_device():
        return
    if (
        _call_with_out(pair, arguments.to("cpu"), _as_out([o.clone() for o in outs], expected.output), False)[1]
        is not None
    ):
        return  # no out= for this call at all
    device = arguments.to(pair.options.device)
    _, error, _ = _call_with_out(pair, device, _as_out(outs, expected.output), True)
    if not isinstance(error, (RuntimeError, TypeError)):
        raise Mismatch("out= on the CPU was accepted; stock PyTorch raises RuntimeError for an out= on another device")
