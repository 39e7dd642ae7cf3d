# SPDX-License-Identifier: Apache-2.0
"""Check one OpInfo in one dtype: the device must do what the CPU does.

Samples are made on the CPU with a fixed seed. Each is run on the CPU first; a sample the CPU refuses is skipped. Then
copies of its arguments go to the device and the answers are compared. Operators that draw random numbers (the CPU's
generator advanced) and those whose result is undefined (`empty`) are compared in everything but their values.

| variant | what is compared |
|---|---|
| forward | the function: values, dtype, shape, device; the arguments afterwards |
| strides, views | strides of the outputs; which outputs share memory with which arguments |
| method, inplace, out | the other spellings of the call; see variants.py for out |
| noncontiguous, conj, neg | the function on strided arguments, on lazily conjugated and negated ones |
| backward | gradients of every argument that wants one |
| errors, error_text | error_inputs: the class of the exception; its text where that names no device |
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from unittest import mock

import torch

from tests.harness import compare, device
from tests.harness.compare import Mismatch
from tests.harness.device import DEVICE
from tests.harness.trees import Mover, Widener, describe, tensors_of
from tests.ops import gauge, ties, variants
from tests.ops.outcome import Outcome, Recorder, error_text
from tests.ops.tolerances import tolerances_for

FORWARD_VARIANTS = ("forward", "strides", "views", "method", "inplace", "out", "noncontiguous", "conj", "neg")
VARIANTS = (*FORWARD_VARIANTS, "backward", "errors", "error_text")
NO_DTYPE = "-"  # error_inputs do not vary with dtype

# Operators whose result (or part of it) is whatever was in memory.
UNDEFINED_VALUES = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "resize_",
        "resize_as_",
    ]
)
# Operators that want the tensors behind the first on the CPU (here: where to split).
HOST_ARGUMENTS = frozenset(["tensor_split"])
_EXACT = {dtype: (0.0, 0.0) for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}
_GENERATED_AT_MOST = 64  # some OpInfos make thousands of samples


@dataclasses.dataclass
class Options:
    """What to run. `call` runs a function on the device: tests of the harness put faults there."""

    device: str = DEVICE
    variants: Sequence[str] = VARIANTS
    max_samples: int = 8
    max_variant_samples: int = 3
    call: Callable[..., Any] = lambda function, *args, **kwargs: function(*args, **kwargs)
    on_begin: Callable[[str, str, str], None] | None = None


@dataclasses.dataclass
class Arguments:
    """Arguments of one call."""

    input: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    host_args: bool = False  # `args` belong on the CPU whatever the device

    @classmethod
    def of(cls, sample: Any, op: Any = None) -> Arguments:
        host = getattr(op, "name", "") in HOST_ARGUMENTS
        return cls(sample.input, tuple(sample.args), dict(sample.kwargs), host)

    @property
    def tree(self) -> tuple[Any, ...]:
        return (self.input, self.args, self.kwargs)

    def to(self, device: str) -> Arguments:
        """A copy on `device` that shares no memory with this one."""
        if self.host_args:
            moved, _, kwargs = Mover(device).move((self.input, (), self.kwargs))
            return Arguments(moved, Mover("cpu").move(self.args), kwargs, True)
        return Arguments(*Mover(device).move(self.tree))

    def widened(self) -> Arguments:
        """A copy on the CPU in the widest floating-point type."""
        return Arguments(*Widener().move(self.tree))

    def apply(self, function: Callable[..., Any], **extra: Any) -> Any:
        return function(self.input, *self.args, **{**self.kwargs, **extra})

    def on_device(self) -> bool:
        """False when nothing in the arguments names a device: then the result belongs on the CPU."""
        if any(True for _ in tensors_of(self.tree)):
            return True
        values = [self.input, *self.args, *self.kwargs.values()]
        return any(
            isinstance(value, torch.device) or value == "cpu"
            for value in values
            if isinstance(value, (str, torch.device))
        )


@dataclasses.dataclass
class Reference:
    """What the CPU did."""

    output: Any
    arguments: Arguments  # afterwards
    random: bool
    wider: Callable[[], Reference | None]  # the same call in the widest type

    def exact(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """What a tensor of the output would be if the CPU hardly rounded."""
        wider = self.wider()
        return compare.exact_results(self.output, wider.output)(tensor) if wider is not None else None


def reference(function: Callable[..., Any], arguments: Arguments, **extra: Any) -> Reference | None:
    """Run on a copy on the CPU; None when the CPU refuses."""
    mine = arguments.to("cpu")
    generator = torch.default_generator
    before = generator.get_state()
    try:
        output = mine.apply(function, **extra)
    except Exception:
        return None
    random = not torch.equal(before, generator.get_state())
    random = random or any(isinstance(value, torch.Generator) for value in mine.kwargs.values())
    if not random and seeds_itself(function):
        again = arguments.to("cpu")
        with other_seeds():
            random = differ((output, mine.tree), (again.apply(function, **extra), again.tree))
    return Reference(output, mine, random, functools.cache(lambda: reference(function, arguments.widened(), **extra)))


def seeds_itself(function: Callable[..., Any]) -> bool:
    """True for the functions of OpInfos that set a seed first, and put the generator's state back afterwards."""
    return "wrapper_set_seed" in getattr(getattr(function, "__code__", None), "co_names", ())


@contextlib.contextmanager
def other_seeds() -> Iterator[None]:
    """Whoever sets a seed gets another one: what differs then is random."""
    original = torch.manual_seed
    with mock.patch("torch.manual_seed", lambda seed: original(int(seed) + 1)):
        yield


def differ(first: Any, second: Any) -> bool:
    """True when the tensors of two trees are not the same to the bit (NaN equals NaN)."""
    try:
        compare.check_tree(list(tensors_of(first)), list(tensors_of(second)), _EXACT)
        return False
    except Mismatch:
        return True


T = TypeVar("T")


def spread(items: Iterable[T], count: int) -> list[T]:
    """At most `count` of the items, evenly spread, always with the first."""
    pool = list(itertools.islice(items, _GENERATED_AT_MOST * max(1, count // 8)))
    if len(pool) <= count:
        return pool
    return [pool[i * len(pool) // count] for i in range(count)]


class PairCheck:
    """All variants of one OpInfo in one dtype."""

    def __init__(self, op: Any, dtype: torch.dtype, options: Options) -> None:
        self.op, self.dtype, self.options = op, dtype, options
        self.recorder = Recorder(op.full_name, str(dtype).removeprefix("torch."), options.on_begin)
        self.tolerances = tolerances_for(op, dtype)

    def run(self) -> list[Outcome]:
        wanted = set(self.options.variants)
        if wanted & set(FORWARD_VARIANTS):
            self._forward_variants(wanted)
        if "backward" in wanted and self.dtype in self.op.supported_backward_dtypes("cpu"):
            self._backward()
        return self.recorder.outcomes()

    # ---- forward ------------------------------------------------------------------------------------------------

    def _forward_variants(self, wanted: set[str]) -> None:
        for i, sample in enumerate(self._samples()):
            arguments = Arguments.of(sample, self.op)
            expected = reference(self.op.op, arguments)
            if expected is None:
                continue
            self._forward("forward", arguments, expected)
            if i >= self.options.max_variant_samples:
                continue
            if "method" in wanted and callable(self.op.method_variant) and isinstance(sample.input, torch.Tensor):
                self._method(arguments)
            if "inplace" in wanted and callable(self.op.inplace_variant) and isinstance(sample.input, torch.Tensor):
                self.recorder.check("inplace", arguments.tree, lambda a=arguments: variants.check_inplace(self, a))
            if "out" in wanted and self.op.supports_out:
                variants.check_out(self, arguments, expected)
            for variant, changed in self._changed(sample, wanted):
                changed_expected = reference(self.op.op, changed)
                if changed_expected is not None:
                    self._forward(variant, changed, changed_expected)

    def _method(self, arguments: Arguments) -> None:
        expected = reference(self.op.method_variant, arguments)
        if expected is not None:
            self._forward("method", arguments, expected, self.op.method_variant)

    def _samples(self, requires_grad: bool = False) -> list[Any]:
        samples = self.op.sample_inputs("cpu", self.dtype, requires_grad=requires_grad)
        return spread(samples, self.options.max_samples)

    def _forward(self, variant: str, arguments: Arguments, expected: Reference, function: Any = None) -> None:
        moved: list[Any] = []

        def run() -> None:
            mine = arguments.to(self.options.device)
            output = self.options.call(function or self.op.op, mine.input, *mine.args, **mine.kwargs)
            self.compare(output, expected, arguments.on_device())
            moved.extend((mine, output))

        if not self.recorder.check(variant, arguments.tree, run) or variant != "forward":
            return
        mine, output = moved
        if "strides" in self.options.variants:
            self.recorder.check("strides", arguments.tree, lambda: compare.check_strides(output, expected.output))
        if "views" in self.options.variants:
            self.recorder.check("views", arguments.tree, lambda: self._check_views(mine, output, expected))
        self.recorder.check("forward", arguments.tree, lambda: self._check_arguments(mine, expected))

    def compare(self, output: Any, expected: Reference, on_device: bool = True) -> None:
        """Raise Mismatch unless the output is the expected one, on the device."""
        output = ties.settle(self.op.name, expected.arguments, output, expected.output)
        output = gauge.settle(self.op.name, expected.arguments, output, expected.output)
        device = self.options.device if on_device else None
        values = self.has_values(expected)
        compare.check_tree(output, expected.output, self.tolerances, values, device, exact=expected.exact)

    def has_values(self, expected: Reference) -> bool:
        return not expected.random and self.op.name not in UNDEFINED_VALUES

    def _check_views(self, mine: Arguments, output: Any, expected: Reference) -> None:
        found = compare.aliases(output, mine.tree)
        wanted = compare.aliases(expected.output, expected.arguments.tree)
        if found != wanted:
            raise Mismatch(f"aliasing (output, argument): expected {wanted}, found {found}")

    def _check_arguments(self, mine: Arguments, expected: Reference) -> None:
        values = self.has_values(expected)
        found, wanted = list(tensors_of(mine.tree)), list(tensors_of(expected.arguments.tree))
        compare.check_tree(found, wanted, self.tolerances, values, at="argument afterwards: ")

    def _changed(self, sample: Any, wanted: set[str]) -> list[tuple[str, Arguments]]:
        """The sample in other layouts and with lazy bits, where that is possible."""
        makers = {"noncontiguous": lambda: Arguments.of(sample.noncontiguous(), self.op)}
        first = sample.input
        lazy = self.dtype in (torch.float32, torch.float64, torch.complex64, torch.complex128)
        if lazy and isinstance(first, torch.Tensor) and first.layout == torch.strided:
            if first.is_complex() and self.op.test_conjugated_samples:
                makers["conj"] = lambda: dataclasses.replace(
                    Arguments.of(sample, self.op), input=torch._conj(first.detach())
                )
            if (first.is_complex() or first.is_floating_point()) and self.op.test_neg_view:
                makers["neg"] = lambda: dataclasses.replace(
                    Arguments.of(sample, self.op), input=torch._neg_view(first.detach())
                )
        changed = []
        for variant in wanted & set(makers):
            try:
                changed.append((variant, makers[variant]()))
            except Exception:  # sparse and other arguments that have no such form
                continue
        return changed

    # ---- backward -----------------------------------------------------------------------------------------------

    def _backward(self) -> None:
        for sample in self._samples(requires_grad=True):
            arguments = Arguments.of(sample, self.op)
            expected = reference_gradients(self.op.op, arguments, sample)
            if expected is not None:
                self.recorder.check(
                    "backward", arguments.tree, lambda a=arguments, s=sample, e=expected: self._check_gradients(a, s, e)
                )

    def _check_gradients(self, arguments: Arguments, sample: Any, expected: Gradients) -> None:
        mine = arguments.to(self.options.device)
        found = gradients(self.op.op, mine, sample.output_process_fn_grad, self.options.call)
        if found is None:
            raise Mismatch("no output requires grad on the device; on the CPU one does")
        values = not expected.random and self.op.name not in UNDEFINED_VALUES
        ours, theirs = ties.settle_gradients(self.op.name, arguments, found.values, expected.values)
        exact = self._exact_gradients(arguments, sample, expected, theirs)
        compare.check_tree(ours, theirs, self.tolerances, values, self.options.device, "gradient ", exact)

    def _exact_gradients(
        self, arguments: Arguments, sample: Any, expected: Gradients, theirs: list[torch.Tensor | None]
    ) -> compare.Exact:
        """Gradients of the same call in the widest type, computed when they are asked for."""

        @functools.cache
        def wider() -> compare.Exact:
            with contextlib.suppress(Exception):  # the CPU may have no such kernel in the wider type
                process = sample.output_process_fn_grad
                exact = gradients(self.op.op, arguments.widened(), process, types=expected.types)
                if exact is not None and [g is None for g in exact.values] == [g is None for g in theirs]:
                    return compare.exact_results(theirs, exact.values)
            return lambda tensor: None

        return lambda tensor: wider()(tensor)


@dataclasses.dataclass
class Gradients:
    """Gradients with respect to the arguments that require them, None where unused."""

    values: list[torch.Tensor | None]
    random: bool
    types: list[torch.dtype]  # of the outputs


def gradients(
    function: Callable[..., Any],
    arguments: Arguments,
    process: Callable[[Any], Any],
    call: Callable[..., Any] | None = None,
    types: Sequence[torch.dtype] | None = None,
) -> Gradients | None:
    """Gradients of a fixed pseudo-random combination of the outputs. None when nothing can be differentiated.

    `types`: what the combination's factors are rounded to, if not to the types of the outputs.
    """
    wanted = [tensor for tensor in tensors_of(arguments.tree) if tensor.requires_grad]
    before = torch.default_generator.get_state()
    output = (call or _plain)(function, arguments.input, *arguments.args, **arguments.kwargs)
    outputs = [tensor for tensor in tensors_of(process(output)) if tensor.requires_grad]
    if not outputs or not wanted:
        return None
    own = [tensor.dtype for tensor in outputs]
    directions = [_direction(tensor, dtype) for tensor, dtype in zip(outputs, types or own, strict=True)]
    values = torch.autograd.grad(outputs, wanted, directions, allow_unused=True)
    return Gradients(list(values), not torch.equal(before, torch.default_generator.get_state()), own)


def reference_gradients(function: Callable[..., Any], arguments: Arguments, sample: Any) -> Gradients | None:
    """The CPU's gradients; None when it has none for this sample."""
    try:
        found = gradients(function, arguments.to("cpu"), sample.output_process_fn_grad)
        if found is not None and seeds_itself(function):
            with other_seeds():
                again = gradients(function, arguments.to("cpu"), sample.output_process_fn_grad)
            found.random = found.random or again is None or differ(found.values, again.values)
        return found
    except Exception:
        return None


def _plain(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _direction(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A fixed direction of the tensor's size, the same on every device."""
    if tensor.layout != torch.strided:
        return torch.ones_like(tensor)
    generator = torch.Generator().manual_seed(tensor.numel())
    working = torch.complex128 if tensor.is_complex() else torch.float64
    values = torch.randn(tensor.shape, dtype=working, generator=generator)
    return values.to(dtype or tensor.dtype).to(tensor.dtype).to(tensor.device)


# ---- errors -----------------------------------------------------------------------------------------------------


def check_errors(op: Any, options: Options) -> list[Outcome]:
    """error_inputs of an OpInfo: the device raises what the CPU raises."""
    recorder = Recorder(op.full_name, NO_DTYPE, options.on_begin)
    if op.error_inputs_func is None or not set(options.variants) & {"errors", "error_text"}:
        return []
    for item in op.error_inputs("cpu"):
        arguments = Arguments.of(item.sample_input, op)
        expected = _raised(lambda a=arguments: a.to("cpu").apply(op.op))
        if expected is None:
            continue  # this build of the CPU accepts it
        found: list[Exception | None] = []

        def run(a: Arguments = arguments, e: Exception = expected, f: list[Exception | None] = found) -> None:
            mine = a.to(options.device)
            f.append(_raised(lambda: _settled(options.call(op.op, mine.input, *mine.args, **mine.kwargs))))
            check_same_error(f[0], e)

        same_class = recorder.check("errors", arguments.tree, run)
        if same_class and "error_text" in options.variants and names_no_device(str(expected)):
            recorder.check(
                "error_text", arguments.tree, lambda r=item.error_regex, f=found, e=expected: _check_text(r, f[0], e)
            )
    return recorder.outcomes()


def _settled(result: Any) -> Any:
    """Wait for the device: what fails on its stream fails here, and not in the next check."""
    device.synchronize()
    return result


def _raised(function: Callable[[], Any]) -> Exception | None:
    try:
        function()
    except Exception as error:
        return error
    return None


def check_same_error(found: Exception | None, expected: Exception | None) -> None:
    """Raise Mismatch unless both are None, or exceptions of one class."""
    if type(found) is type(expected):
        return
    wanted = error_text(expected) if expected is not None else "no exception"
    if found is None:
        raise Mismatch(f"expected {wanted}; the device raised nothing")
    raise Mismatch(f"expected {wanted}; the device raised {error_text(found)}")


def names_no_device(text: str) -> bool:
    """True for messages that should read the same on any device."""
    return not re.search(r"\bcpu\b|device|backend|address|0x", text, re.IGNORECASE)


def _check_text(regex: str, found: Exception | None, expected: Exception) -> None:
    if re.search(regex, str(expected)) and not re.search(regex, str(found)):
        raise Mismatch(f"message: expected {error_text(expected)}; the device says {error_text(found or Exception())}")


__all__ = ["Arguments", "Options", "PairCheck", "Reference", "check_errors", "describe", "reference", "spread"]
