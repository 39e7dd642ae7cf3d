# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes: `register_backend`."""

from __future__ import annotations

import inspect
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch_fl import _load
from torch_fl._suggest import did_you_mean
from torch_fl.chips.python_backend.adapter import Adapter
from torch_fl.chips.python_backend.memory import HostMemoryAllocator, MemoryAllocator
from torch_fl.chips.python_backend.tensors import ITEM_SIZES

if TYPE_CHECKING:
    import torch

Backend = TypeVar("Backend", bound=type)

_lock = threading.RLock()
_graph_compilers: dict[str, list[Callable[..., Any]]] = {}


def register_backend(
    name: str,
    *,
    vendor: str = "",
    device_type: str | None = None,
    devices: int = 1,
    dtypes: Iterable[str | torch.dtype] | None = None,
) -> Callable[[Backend], Backend]:
    """Make a class a chip of this process: ``@torch_fl.register_backend("mychip")``.

    The class is instantiated once for each device, without arguments. It has:

    * ``init_runtime(self)``: called when the device is first used; may return a dict of properties.
    * ``dispatch(self, op_name, tensors, params)``: computes, or returns None for what it does not want.
    * ``memory`` (optional): a `MemoryAllocator`; without it the memory is the host's.
    * ``operators`` (optional): names of the operators it wants, or a dict that gives the dtypes of each.
    * ``supports(self, op_name, tensors, params)`` (optional): True, False, or a reason as text.
    * ``graph_compile`` (optional): for the graph compiler.

    Its devices come after those there are. Nothing can be unregistered.

    Args:
        name: of the chip: letters, digits, ``_`` and ``-``.
        vendor: for people.
        device_type: a name for its devices (``"npu"``).
        devices: how many it has.
        dtypes: that it computes in; None: all.

    Raises:
        ValueError, TypeError: the class or an argument is not as described here, or the name is taken.
    """
    if not isinstance(name, str):
        raise TypeError('register_backend takes the chip\'s name: @torch_fl.register_backend("mychip")')
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,63}", name):
        raise ValueError(f"the chip's name is {name!r}, but 1 to 63 letters, digits, '_' and '-' were expected")
    if device_type is not None and not re.fullmatch(r"[a-z][a-z0-9_]*", device_type):
        raise ValueError(f"{name}: device_type is {device_type!r}, expected a lower-case name such as 'npu'")
    if not isinstance(devices, int) or isinstance(devices, bool) or not 1 <= devices <= 64:
        raise ValueError(f"{name}: devices is {devices!r}, expected a number from 1 to 64")
    types = _dtype_names(name, dtypes or ())

    def register(cls: Backend) -> Backend:
        with _lock:
            _register(name, cls, vendor, device_type or "", devices, types)
        return cls

    return register


def _register(name: str, cls: type, vendor: str, device_type: str, devices: int, dtypes: list[str]) -> None:
    core = _load.core()
    _check_class(name, cls)
    adapters = [_make_adapter(name, cls, index) for index in range(devices)]
    spec = {
        "name": name,
        "vendor": vendor,
        "device_type": device_type,
        "source": _source_of(cls),
        "devices": [_device_spec(adapter) for adapter in adapters],
        "dtypes": dtypes,
        "operators": _operators(name, cls),
        "supports": callable(getattr(cls, "supports", None)),
        "pinned": _overrides(adapters[0].memory, "allocate_pinned"),
        "host_coherent": adapters[0].coherent,
    }
    first = core.device_count()
    try:
        core.register_python_chip(spec, adapters)
    except KeyError as error:
        raise ValueError(f"{name}: {_no_operator(error.args[0])}") from None
    except ValueError as error:
        raise ValueError(f"the backend {name} cannot be registered: {error}") from None
    for index, adapter in enumerate(adapters, first):
        adapter.where = f"{_load.DEVICE_TYPE}:{index}"
    _seed(core, range(first, first + devices))
    compilers = [adapter.backend.graph_compile for adapter in adapters if hasattr(adapter.backend, "graph_compile")]
    _graph_compilers.update({name: compilers} if compilers else {})


def graph_compilers(name: str) -> Sequence[Callable[..., Any]]:
    """Return the ``graph_compile`` of each device of a backend; none if it has none."""
    return tuple(_graph_compilers.get(name, ()))


def _seed(core: Any, indices: Iterable[int]) -> None:
    """Give new devices the seed that torch.manual_seed() has given to the others."""
    import torch

    for index in indices:
        core.default_generator(index).manual_seed(torch.initial_seed())


def _check_class(name: str, cls: Any) -> None:
    if not inspect.isclass(cls):
        raise TypeError(f"{name}: register_backend decorates a class, found {type(cls).__name__}")
    for method, needed in (("init_runtime", True), ("dispatch", True), ("supports", False), ("graph_compile", False)):
        found = getattr(cls, method, None)
        if callable(found) or (found is None and not needed):
            continue
        what = "has no method" if found is None else "has something that cannot be called as"
        raise TypeError(f"{name}: the class {cls.__name__} {what} {method}")


def _make_adapter(name: str, cls: type, index: int) -> Adapter:
    try:
        backend = cls()
    except Exception as error:
        raise TypeError(f"{name}: {cls.__name__}() failed: {type(error).__name__}: {error}") from error
    memory = getattr(backend, "memory", None) or HostMemoryAllocator()
    if inspect.isclass(memory) and issubclass(memory, MemoryAllocator):
        memory = memory()
    if not isinstance(memory, MemoryAllocator):
        raise TypeError(f"{name}: memory is of type {type(memory).__name__}, expected a torch_fl.MemoryAllocator")
    for method in ("allocate", *(() if memory.host_coherent else ("copy_in", "copy_out"))):
        if not _overrides(memory, method):
            raise TypeError(f"{name}: {type(memory).__name__} has no method {method}, which it needs")
    backend.device_index = index
    return Adapter(name, backend, memory, index)


def _overrides(memory: MemoryAllocator, method: str) -> bool:
    return getattr(type(memory), method) is not getattr(MemoryAllocator, method) or method in vars(memory)


def _device_spec(adapter: Adapter) -> dict[str, Any]:
    memory = adapter.memory
    sizes = {key: getattr(memory, key) for key in ("alignment", "total_memory", "max_allocation")}
    for key, value in sizes.items():
        least = 0 if key == "max_allocation" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{adapter.name}: {type(memory).__name__}.{key} is {value!r}, expected bytes as an int")
    return {"name": f"{adapter.name} {adapter.index}", **sizes}


def _dtype_names(where: str, dtypes: Iterable[Any]) -> list[str]:
    names = [str(item).removeprefix("torch.") for item in ([dtypes] if isinstance(dtypes, str) else dtypes)]
    for item in names:
        if item not in ITEM_SIZES:
            raise ValueError(f"{where}: there is no dtype {item!r}{did_you_mean(item, ITEM_SIZES)}")
    return names


def _operators(name: str, cls: Any) -> dict[str, list[str]] | None:
    listed = getattr(cls, "operators", None)
    if listed is None:
        return None
    if isinstance(listed, str) or not isinstance(listed, Iterable):
        raise TypeError(f"{name}: operators is {listed!r}, expected a list of names, or a dict of names to dtypes")
    items = listed.items() if isinstance(listed, Mapping) else [(op, ()) for op in listed]
    rows = {}
    for op, types in items:
        if not isinstance(op, str):
            raise TypeError(f"{name}: operators names {op!r}, expected a text such as 'aten::add.Tensor'")
        full = op if "::" in op else f"aten::{op}"
        if full in rows:
            raise ValueError(f"{name}: operators names {full} twice")
        rows[full] = _dtype_names(f"{name}: operators: {op}", types or ())
    return rows


def _no_operator(name: str) -> str:
    import torch

    known = torch._C._dispatch_get_all_op_names()
    overloads = sorted(item for item in known if item.startswith(f"{name}."))
    if overloads:
        functional = [item for item in overloads if not item.endswith("out")][:6]
        return f"operators names {name}, which has overloads; name one: {', '.join(functional)}"
    return f"operators names {name}, which does not exist{did_you_mean(name, known)}"


def _source_of(cls: type) -> str:
    """Return where the class is written, for people."""
    try:
        file = inspect.getsourcefile(cls)
        line = inspect.getsourcelines(cls)[1]
    except (TypeError, OSError):
        return f"{cls.__module__}.{cls.__qualname__}"
    return f"{file}:{line}"
