# SPDX-License-Identifier: Apache-2.0
"""Route ``decomposed``: an operator as PyTorch's tables make it of others, where a chip has kernels for all of those.

The core asks once for each plan. The decomposition is run on fake tensors (metadata only) and each operator that it
calls is looked at: is there a kernel, or a portable one, that would take just this call?
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch_fl import _load

if TYPE_CHECKING:
    import torch

# They move no data, or are the core's own on every chip.
_FREE = frozenset(
    {
        *("alias", "as_strided", "detach", "empty", "empty_like", "empty_strided", "lift_fresh", "new_empty"),
        *("new_empty_strided", "resize_", "set_", "view", "_reshape_alias", "_unsafe_view"),
    }
)
_MEMORY = 4096
_MAX_DEPTH = 30
_known_misfits: dict[Any, str] = {}


def is_listed(name: str) -> bool:
    """Tell whether PyTorch has a decomposition of an overload ("aten::gelu", "aten::add.Tensor")."""
    return _decomposition(name) is not None


def run(name: str, values: Sequence[Any]) -> Any:
    """Run the decomposition of an overload on all of its arguments, in the schema's order."""
    import torch

    decomposition = _decomposition(name)
    assert decomposition is not None
    args, kwargs = split_arguments(overload(name), values)
    with torch._C.DisableTorchFunction():
        return decomposition(*args, **kwargs)


def analyse(
    name: str, device: int, values: Sequence[Any], expected: Sequence[tuple[torch.dtype, list[int]]]
) -> tuple[bool, str]:
    """Tell whether a call can be decomposed on a device, and into what, or why not ("": there is nothing to tell).

    Args:
        name: the overload.
        device: the index of the fl device.
        values: its arguments, in the schema's order. Of tensors only the metadata is looked at.
        expected: dtype and sizes of what the operator itself gives.
    """
    key = _kind_of_call(name, device, values)
    if key in _known_misfits:
        return False, _known_misfits[key]
    parts = Parts(overload(name), device)
    try:
        text = _trial(parts, values, expected)
    except _ItselfAgain:
        _known_misfits[key] = ""
        return False, ""
    if text is None and not parts.missing:
        return True, f"decomposed into {parts.listed()}"
    text = f"not decomposed: {text or parts.why_not()}"
    if len(_known_misfits) >= _MEMORY:
        _known_misfits.clear()
    _known_misfits[key] = text
    return False, text


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep PyTorch from logging what a trial finds to be wrong: the call itself will raise it."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


@functools.cache
def summary(name: str, device: int) -> tuple[bool, str] | None:
    """Tell about an overload in general, from an example of a call. None: no decomposition, or no example that fits.

    A call of other types or shapes may fare differently.
    """
    if not is_listed(name):
        return None
    op = overload(name)
    best: tuple[bool, str] | None = None
    for sizes in ((4, 4), (2, 4, 4, 4), (4,)):
        parts = Parts(op, device)
        try:
            parts.run(_decomposition(name), _example(op, device, sizes))
        except _ItselfAgain:
            return None
        except _GaveUp as error:
            return False, f"not decomposed: {error}"
        except Exception:  # no example of a call
            continue
        if not parts.missing:
            return True, f"decomposed into {parts.listed()}"
        best = best or (False, f"not decomposed: {parts.why_not()}")
    return best


def _example(op: Any, device: int, sizes: tuple[int, ...]) -> list[Any]:
    """Return arguments for an operator, in the schema's order: float32 tensors of these sizes, and small numbers."""
    phantoms = Phantoms(device)
    return [_example_argument(argument, phantoms, sizes) for argument in op._schema.arguments]


def _example_argument(argument: Any, phantoms: Phantoms, sizes: tuple[int, ...]) -> Any:
    import torch

    if argument.has_default_value():
        return argument.default_value
    kind = str(argument.type)
    if kind.startswith("Optional"):
        return None
    if kind == "List[Tensor]":
        return [phantoms.fresh(torch.float32, sizes)] * 2
    if kind == "Tensor":
        of_channels = argument.name in ("weight", "bias", "running_mean", "running_var") and len(sizes) > 1
        dtype = torch.int64 if argument.name in ("index", "indices", "target") else torch.float32
        return phantoms.fresh(torch.bool if argument.name == "mask" else dtype, sizes[1:2] if of_channels else sizes)
    by_kind = {"int": 1, "float": 0.5, "number": 1, "bool": False, "str": "none"}
    if argument.name == "normalized_shape":
        return [sizes[-1]]
    return [1] if kind == "List[int]" else by_kind[kind]


def forget() -> None:
    """Forget which calls could not be decomposed."""
    _known_misfits.clear()


@functools.cache
def overload(name: str) -> Any:
    """Return the operator of a full name."""
    import torch

    namespace, _, rest = name.partition("::")
    packet, _, which = rest.partition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), which or "default")


@functools.cache
def _decomposition(name: str) -> Callable[..., Any] | None:
    import torch._decomp

    try:
        op = overload(name)
    except AttributeError:
        return None
    found: Callable[..., Any] | None = torch._decomp.decomposition_table.get(op)
    return found


def split_arguments(op: Any, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Split values in the schema's order into positional ones and keywords; what has its default is left out."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    given = 0
    for argument, value in zip(op._schema.arguments, values, strict=True):
        is_default = argument.has_default_value() and _same(value, argument.default_value)
        if argument.kwarg_only:
            if not is_default and value is not None:
                kwargs[argument.name] = value
            continue
        args.append(value)
        if not is_default:
            given = len(args)
    return args[:given], kwargs


def _same(value: Any, default: Any) -> bool:
    import torch

    if isinstance(value, torch.Tensor) or isinstance(default, torch.Tensor):
        return False
    return type(value) is type(default) and bool(value == default)


def _kind_of_call(name: str, device: int, values: Sequence[Any]) -> Any:
    """What a misfit is remembered by: coarser than a plan's signature, for there can be many of those."""
    import torch

    def kind(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return value.dtype, value.dim(), value.numel() == 0
        return tuple(map(kind, value)) if isinstance(value, (list, tuple)) else repr(value)

    return name, device, tuple(map(kind, values))


def _trial(parts: Parts, values: Sequence[Any], expected: Sequence[tuple[torch.dtype, list[int]]]) -> str | None:
    """Run the decomposition on fake tensors; return what is wrong with it, apart from missing kernels."""
    import torch

    try:
        results = parts.run(_decomposition(parts.name), values)
    except _ItselfAgain:
        raise
    except _GaveUp as error:
        return str(error)
    except Exception as error:  # whatever a decomposition does with arguments that it was not written for
        text = str(error).partition("\n")[0]
        return f"its decomposition does not take the call ({type(error).__name__}: {text[:200]})"
    found = results if isinstance(results, (list, tuple)) else (results,)
    if not all(isinstance(result, torch.Tensor) for result in found) or len(found) != len(expected):
        return f"its decomposition gives {len(found)} results, expected {len(expected)} tensors"
    for result, (dtype, sizes) in zip(found, expected, strict=True):
        if result.dtype != dtype or list(result.shape) != list(sizes):
            return f"its decomposition gives {result.dtype} {list(result.shape)}, expected {dtype} {list(sizes)}"
    return None


class _ItselfAgain(Exception):
    """What is listed as a decomposition calls the operator itself."""


class _GaveUp(Exception):
    """The decomposition does what no chip's kernel could do for it."""


class Parts:
    """What a decomposition is made of: found by running it on fake tensors of one device."""

    def __init__(self, op: Any, device: int) -> None:
        self.op = op
        self.name = full_name(op)
        self.device = device
        self.needed: dict[str, None] = {}  # operators, in order
        self.missing: dict[str, str] = {}  # those without a kernel that takes the call, and why not
        self._depth = 0

    def listed(self) -> str:
        """Return the operators as a person reads them."""
        return ", ".join(self.needed) or "views alone"

    def why_not(self) -> str:
        """Say what the chip lacks."""
        return "needs " + "; ".join(f"{op}, for which {why}" for op, why in self.missing.items())

    def run(self, decomposition: Callable[..., Any] | None, values: Sequence[Any]) -> Any:
        """Run a decomposition on fakes of these arguments."""
        import torch
        from torch._subclasses.fake_tensor import FakeTensorMode

        assert decomposition is not None
        with torch.no_grad(), torch._C.DisableTorchFunction(), _quiet():
            fakes = FakeTensorMode(allow_non_fake_inputs=True)
            args, kwargs = split_arguments(self.op, [self._fake(fakes, value) for value in values])
            with fakes, watching(self._see):
                return decomposition(*args, **kwargs)

    def _fake(self, mode: Any, value: Any) -> Any:
        import torch
        from torch._subclasses.fake_tensor import FakeTensor

        if isinstance(value, (list, tuple)):
            return type(value)(self._fake(mode, item) for item in value)
        if not isinstance(value, torch.Tensor):
            return value
        device = value.device if value.device.type == "cpu" else torch.device("fl", self.device)
        meta = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
        return FakeTensor(mode, meta, device)  # type: ignore[no-untyped-call]

    def _see(self, op: Any, args: Any, kwargs: Any, mode: Any) -> Any:
        """Judge one call, and make it on fakes: in parts where it is composed of others."""
        if not self._moves_data(op, args, kwargs):
            return op(*args, **kwargs)
        if op is self.op:
            raise _ItselfAgain
        if op._schema.name == "aten::copy_":
            self._see_copy(args[0], args[1])
        elif self._is_composed(op, args, kwargs):
            return self._in_parts(op, args, kwargs, mode)
        return op(*args, **kwargs)

    def _moves_data(self, op: Any, args: Any, kwargs: Any) -> bool:
        from torch.utils import _pytree

        base = op._schema.name.partition("::")[2]
        if (
            op.namespace == "prim"
            or base in _FREE
            or op.is_view
            or (base == "zero_" and _load.core().can_fill(self.device))
        ):
            return False
        return any(map(_is_on_fl, _pytree.tree_leaves((args, kwargs))))

    def _is_composed(self, op: Any, args: Any, kwargs: Any) -> bool:
        """Tell whether PyTorch composes the operator of others; if not, note it as needed."""
        if op.namespace != "aten" or _is_composite(op):
            return True
        phantoms = Phantoms(self.device)
        route, reason, _ = probe(op, self.device, True, phantoms.all(args), phantoms.all(kwargs))
        if route == "composite":
            return True
        self._need(op._schema.name, None if route in ("kernel", "portable") else reason)
        return False

    def _in_parts(self, op: Any, args: Any, kwargs: Any, mode: Any) -> Any:
        import torch

        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _GaveUp(f"{op} leads back to itself")
        try:
            with mode:
                if _is_composite(op):
                    return op.decompose(*args, **kwargs)
                composite = torch._C.DispatchKeySet(torch._C.DispatchKey.PrivateUse2)  # of no backend
                return op.redispatch(composite, *args, **kwargs)
        finally:
            self._depth -= 1

    def _see_copy(self, target: torch.Tensor, source: torch.Tensor) -> None:
        plain = target.dtype == source.dtype and target.shape == source.shape and target.stride() == source.stride()
        if target.device == source.device and not plain:
            takes = _load.core().has_copy(self.device, source.dtype, target.dtype)
            self._need("aten::copy", None if takes else "the chip has no kernel")

    def _need(self, op: str, why_not: str | None) -> None:
        self.needed[op] = None
        if why_not is not None:
            self.missing.setdefault(op, why_not)


def _is_on_fl(value: Any) -> bool:
    import torch

    device = value.device if isinstance(value, torch.Tensor) else value
    return isinstance(device, torch.device) and device.type == "fl"


class Phantoms:
    """Tensors of a device without memory, in the place of others."""

    def __init__(self, device: int) -> None:
        self.device = device
        self._storages: dict[int, torch.Tensor] = {}

    def all(self, tree: Any) -> Any:
        """Return the same arguments with phantoms for the tensors of fl devices and of fake CPUs."""
        import torch
        from torch.utils import _pytree

        return _pytree.tree_map_only(torch.Tensor, self._one, tree)

    def fresh(self, dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
        """Return a dense one."""
        import torch

        with torch._C._DisableTorchDispatch():
            return self._one(torch.empty(tuple(sizes), dtype=dtype, device="meta"))

    def _one(self, tensor: torch.Tensor) -> torch.Tensor:
        import torch

        if tensor.device.type == "cpu":
            with torch._C._DisableTorchDispatch():
                return torch.empty(tensor.shape, dtype=tensor.dtype)
        storage = tensor.untyped_storage()
        made = _load.core().phantom(
            self.device,
            tensor.dtype,
            list(tensor.shape),
            list(tensor.stride()),
            tensor.storage_offset(),
            storage.nbytes(),
            self._storages.get(storage._cdata),
        )
        self._storages.setdefault(storage._cdata, made)
        result: torch.Tensor = made
        return result


def probe(
    op: Any, device: int, kernels_only: bool, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[str | None, str, list[tuple[str, str]]]:
    """Ask the core which route a call on phantoms would take, why, and why not the ones before it."""
    import torch

    schema = op._schema
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        answer: tuple[str | None, str, list[tuple[str, str]]] = _load.core().probe(
            schema.name, schema.overload_name, device, kernels_only, *args, **kwargs
        )
    return answer


def is_routed(op: Any) -> bool:
    """Tell whether calls of an operator are routed: not views, factories and copies, nor what is made of others."""
    base = op._schema.name.partition("::")[2]
    return not (base in _FREE or base in ("copy_", "_to_copy") or _is_composite(op))


def full_name(op: Any) -> str:
    """Return the name of an overload as the core writes it."""
    return f"{op._schema.name}.{op._schema.overload_name}".removesuffix(".")


def _is_composite(op: Any) -> bool:
    """Tell whether PyTorch makes the operator of others before any device is asked."""
    import torch

    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


@contextmanager
def watching(see: Callable[[Any, Any, Any, Any], Any]) -> Iterator[None]:
    """Call ``see(op, args, kwargs, mode)`` in every operator's place; ``with mode:`` watches what it does itself."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return see(func, args, kwargs or {}, self)

    with Watch():  # type: ignore[no-untyped-call]
        yield
