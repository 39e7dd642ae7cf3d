# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes: `register_backend`, `MemoryAllocator`, `TensorView`. For prototypes.

See docs/python_backend.md. The core sees an ordinary chip (csrc/torch/python_chip.cpp), whose functions call the
`_Adapter` of one device.
"""

from __future__ import annotations

import ctypes
import inspect
import mmap
import os
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from torch_fl import _load
from torch_fl._suggest import did_you_mean

if TYPE_CHECKING:
    import torch

Array = Any  # numpy.ndarray: numpy is imported by those who use it
Backend = TypeVar("Backend", bound=type)
Row = tuple[str, str, tuple[int, ...], tuple[int, ...], int, Any]  # name, dtype, shape, strides, address, number

ITEM_SIZES = {
    **dict.fromkeys(("uint8", "int8", "bool"), 1),
    **dict.fromkeys(("float8_e5m2", "float8_e4m3fn", "float8_e5m2fnuz", "float8_e4m3fnuz", "float8_e8m0fnu"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32", "complex32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}
# Of these numpy has no type; their elements can be had as unsigned integers.
WITHOUT_NUMPY = frozenset(name for name in ITEM_SIZES if name.startswith(("bfloat", "float8"))) | {"complex32"}
MESSAGE = 300  # characters of either end of a long message
BITS = {1: "uint8", 2: "uint16", 4: "uint32"}


# ---- Memory ---------------------------------------------------------------------------------------------------------
class MemoryAllocator:
    """Where the memory of a device comes from. Caching, streams and statistics are the core's, above it.

    The attributes are read when the backend is registered; the methods are called when the core wants a new segment
    or gives one back. They must not use the device whose memory they are about.
    """

    alignment: int = 64
    """Every address is a multiple of it: a power of two, in bytes."""

    total_memory: int = 1 << 30
    """Bytes of the device."""

    max_allocation: int = 0
    """Largest single allocation in bytes; 0: `total_memory`."""

    host_coherent: bool = True
    """The host may read and write at the addresses. If not, `copy_in` and `copy_out` move the data."""

    def padded_size(self, nbytes: int) -> int:
        """Return how many bytes `allocate` shall be asked for, where `nbytes` are wanted."""
        return nbytes

    def allocate(self, nbytes: int) -> Any:
        """Return `nbytes` of memory: an address, or an object with a writable buffer, kept until it is freed.

        Raise MemoryError if there is not so much.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method allocate(nbytes)")

    def free(self, address: int) -> None:
        """Take memory back. Not called for buffer objects, which are dropped."""

    def allocate_pinned(self, nbytes: int) -> Any:
        """Return pinned host memory, as `allocate` does. Without this method, ordinary host memory is used."""
        raise NotImplementedError

    def free_pinned(self, address: int) -> None:
        """Take pinned memory back. Not called for buffer objects."""

    def copy_in(self, address: int, data: memoryview) -> None:
        """Copy bytes of the host to the device."""
        raise NotImplementedError(f"{type(self).__name__} is not host-coherent and must have copy_in(address, data)")

    def copy_out(self, address: int, into: memoryview) -> None:
        """Copy bytes of the device to the host."""
        raise NotImplementedError(f"{type(self).__name__} is not host-coherent and must have copy_out(address, into)")

    def copy_within(self, destination: int, source: int, nbytes: int) -> None:
        """Copy bytes inside the device. Without this method, they go through the host."""
        staging = bytearray(nbytes)
        self.copy_out(source, memoryview(staging))
        self.copy_in(destination, memoryview(staging))


class HostMemoryAllocator(MemoryAllocator):
    """Memory of the host; what a backend has if it says nothing."""

    def __init__(self, total_memory: int | None = None) -> None:
        self.total_memory = total_memory or os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def allocate(self, nbytes: int) -> Any:
        """Return anonymous pages."""
        try:
            return mmap.mmap(-1, nbytes)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"the host has no {nbytes} bytes: {error}") from None


# ---- Tensors --------------------------------------------------------------------------------------------------------
class TensorView:
    """A tensor argument or an output, valid during the call it came with."""

    __slots__ = ("_address", "_call", "_memory", "_number", "dtype", "name", "shape", "strides", "writable")

    def __init__(self, call: _Call, row: Row, writable: bool) -> None:
        self.name, self.dtype, self.shape, self.strides, self._address, self._number = row
        self.writable = writable
        self._call = call
        self._memory: Any = None

    @property
    def address(self) -> int:
        """The address of the first element, on the device. 0 where there are no elements, and inside `supports`."""
        self._check()
        if self._number is not None:
            raise TypeError(f"{self} is a number, which has no address: see number")
        return self._address

    @property
    def number(self) -> Any:
        """The value, where PyTorch was given a number in the place of a tensor (``x + 1``); else None."""
        return self._number

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        count = 1
        for length in self.shape:
            count *= length
        return count

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return ITEM_SIZES[self.dtype]

    @property
    def extent(self) -> int:
        """Bytes from the first element to the end of the last, wherever the strides lead."""
        if self.size == 0:
            return 0
        last = sum((length - 1) * stride for length, stride in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.itemsize

    def numpy(self) -> Array:
        """Return the elements as an array, without a copy; an input's is read-only. It ends with the call, too."""
        if self.dtype in WITHOUT_NUMPY:
            raise TypeError(f"{self}: numpy has no {self.dtype}; bits() gives the elements as unsigned integers")
        return self._array(self.dtype)

    def bits(self) -> Array:
        """Return the elements as unsigned integers of the same size: for bfloat16 and others that numpy lacks."""
        return self._array(BITS[self.itemsize]) if self.itemsize in BITS else self._array(self.dtype).view("uint64")

    def torch(self) -> torch.Tensor:
        """Return the elements as a tensor of the CPU, without a copy. An input must not be written to."""
        import torch

        self._check()
        dtype = getattr(torch, self.dtype)
        if self._number is not None:
            return torch.tensor(self._number, dtype=dtype)
        self._check_reach()
        if self.size == 0:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(self._buffer(), dtype=dtype).as_strided(self.shape, self.strides)

    def to_host(self) -> Array:
        """Return a copy of the elements in memory of the host, which may be kept."""
        if self._call.adapter.coherent or self._number is not None:
            return self._as_stored().copy()
        import numpy

        self._check()
        staging = bytearray(self.extent)
        if staging:
            self._call.adapter.memory.copy_out(self.address, memoryview(staging))
        return numpy.ndarray(self.shape, self._stored_type(), staging, strides=self._byte_strides()).copy()

    def write(self, values: Any) -> None:
        """Copy an array, or a tensor of the CPU, into this output. Its shape and type must be the same."""
        self._check()
        if not self.writable:
            raise TypeError(f"{self} is an input and cannot be written")
        self._store(self._fitting(values))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        array = self.numpy() if self._call.adapter.coherent or self._number is not None else self.to_host()
        return array.astype(dtype) if dtype is not None and array.dtype != dtype else array.copy() if copy else array

    def __repr__(self) -> str:
        return f"{self.name} {self.dtype}{list(self.shape)}"

    # ---- What follows is the core's.
    def _check(self) -> None:
        if not self._call.open:
            raise RuntimeError(
                f"{self} belongs to a call of {self._call.op} that is over: its memory may be another tensor's by now. "
                "Copy what is to be kept"
            )

    def _check_reach(self) -> None:
        if not self._call.adapter.coherent:
            raise TypeError(
                f"{self}: the host cannot reach the memory of {self._call.adapter.where}; to_host() gives a copy, and "
                "address is for the chip's own functions"
            )
        if self._call.describes:
            raise RuntimeError(f"{self}: supports() is asked before there is memory; it may look at shape and dtype")

    def _buffer(self) -> Any:
        """Return the memory as an object that everything that looks at it refers to."""
        if self._memory is None:
            self._memory = (ctypes.c_char * self.extent).from_address(self._address)
        return self._memory

    def _stored_type(self) -> str:
        return BITS[self.itemsize] if self.dtype in WITHOUT_NUMPY else self.dtype

    def _as_stored(self) -> Array:
        return self._array(self._stored_type())

    def _byte_strides(self) -> tuple[int, ...]:
        return tuple(stride * self.itemsize for stride in self.strides)

    def _array(self, dtype: str) -> Array:
        import numpy

        self._check()
        if self._number is not None:
            return _number_array(self._number, self.dtype).view(dtype)
        self._check_reach()
        if self.size == 0:
            return numpy.empty(self.shape, dtype)
        array: Any = numpy.ndarray(self.shape, dtype, self._buffer(), strides=self._byte_strides())
        array.flags.writeable = self.writable
        return array

    def _fitting(self, values: Any) -> Array:
        """Return values as an array that can be stored as it is."""
        array = _as_array(values)
        found = "bfloat16 bits" if array.dtype.name == "bfloat16" else array.dtype.name
        if array.dtype.name == "bfloat16" and self.dtype == "bfloat16":
            array = array.view("uint16")
        if tuple(array.shape) != self.shape:
            raise ValueError(f"the shape is {list(array.shape)}, expected {list(self.shape)}")
        if array.dtype != self._stored_type() or not array.dtype.isnative:
            expected = (
                f"{self.dtype} (its bits as {self._stored_type()})" if self.dtype in WITHOUT_NUMPY else self.dtype
            )
            raise TypeError(f"the dtype is {found}, expected {expected}")
        return array

    def _store(self, array: Array) -> None:
        if self.size == 0:
            return
        if self._call.adapter.coherent:
            self._as_stored()[...] = array
        else:
            # Outputs of such chips are dense (see make_row in python_chip.cpp).
            self._call.adapter.memory.copy_in(self.address, memoryview(array.tobytes()))

    def _close(self) -> Any:
        """Let go of the memory; return it, if an array that looks at it was kept."""
        memory, self._memory = self._memory, None
        return memory if memory is not None and sys.getrefcount(memory) > 2 else None  # 2: `memory`, the argument


def _number_array(value: Any, dtype: str) -> Array:
    import numpy

    if dtype not in WITHOUT_NUMPY:
        return numpy.array(value, dtype)
    import torch

    return torch.tensor(value, dtype=getattr(torch, dtype)).view(getattr(torch, BITS[ITEM_SIZES[dtype]])).numpy()


def _as_array(values: Any) -> Array:
    import numpy

    if isinstance(values, numpy.ndarray):
        return values
    if isinstance(values, numpy.generic):
        return numpy.asarray(values)
    if isinstance(values, TensorView):
        return values._as_stored() if values._call.adapter.coherent else values.to_host()
    torch = sys.modules["torch"]
    if isinstance(values, torch.Tensor):
        if values.device.type != "cpu":
            raise TypeError(f"a tensor on {values.device}, expected an array or a tensor on the CPU")
        tensor = values.detach().resolve_conj().resolve_neg()
        name = str(tensor.dtype).removeprefix("torch.")
        return (tensor.view(getattr(torch, BITS[tensor.element_size()])) if name in WITHOUT_NUMPY else tensor).numpy()
    if hasattr(values, "__array__") or hasattr(values, "__array_interface__"):
        return numpy.asarray(values)
    raise TypeError(f"{type(values).__name__}, expected an array or a tensor on the CPU")


# ---- One device, as the core calls it -------------------------------------------------------------------------------
class _Call:
    """One call of dispatch() or supports(), and the views that end with it."""

    __slots__ = ("adapter", "describes", "given", "inputs", "op", "open", "outs", "params")

    def __init__(
        self, adapter: _Adapter, op: str, tensors: list[Row], params: dict[str, Any], outs: list[Row | None]
    ) -> None:
        self.adapter, self.op, self.open, self.describes = adapter, op, True, False
        self.inputs = [TensorView(self, row, False) for row in tensors]
        self.outs = [None if row is None else TensorView(self, row, True) for row in outs]
        self.given = list(self.outs)  # the class may do to it what it likes
        self.params = params
        params["out"] = self.given

    def __str__(self) -> str:
        return f"{self.op}({', '.join(map(repr, self.inputs))})"

    def store(self, answer: Any) -> None:
        """Copy what dispatch() returned into the outputs."""
        if answer is self.given:
            return
        results = list(answer) if isinstance(answer, tuple | list) else [answer]
        if len(results) != len(self.outs):
            raise ValueError(f"it returned {len(results)} results, expected {len(self.outs)}")
        for i, (result, out) in enumerate(zip(results, self.outs, strict=True)):
            if out is None or result is out:
                continue
            try:
                out._store(out._fitting(result))
            except (TypeError, ValueError) as error:
                where = "the result" if len(self.outs) == 1 else f"result {i}"
                raise type(error)(f"{where} does not fit: {error}") from None

    def close(self) -> list[tuple[str, Any]]:
        """End the views; return names and memory of those of which arrays were kept."""
        self.open = False
        memories = [(view.name, view._close()) for view in (*self.inputs, *self.outs) if view is not None]
        return [(name, memory) for name, memory in memories if memory is not None]


class _Adapter:
    """What the core calls for one device of a backend."""

    def __init__(self, name: str, backend: Any, memory: MemoryAllocator, index: int) -> None:
        self.name, self.backend, self.memory, self.index = name, backend, memory, index
        self.coherent = bool(memory.host_coherent)
        self.where = name
        self._buffers: dict[int, Any] = {}  # by address
        self._watched: list[Any] = []  # memory at which arrays looked when their call was over
        self._to_free: list[tuple[int, Callable[[int], None]]] = []

    def open(self) -> dict[str, Any] | None:
        """Initialise the device; return what the class says about it."""
        said = self.backend.init_runtime()
        if said is None:
            return None
        if not isinstance(said, Mapping):
            raise TypeError(f"init_runtime() returned {type(said).__name__}, expected None or a dict of properties")
        return {key: _checked_property(key, value) for key, value in said.items()}

    # ---- Calls
    def run(self, op: str, tensors: list[Row], params: dict[str, Any], outs: list[Row | None]) -> bool:
        """Let the class compute. False: it does not want to."""
        call = _Call(self, op, tensors, params, outs)
        done = failed = False
        try:
            answer = self.backend.dispatch(op, list(call.inputs), params)
            if answer is not None:
                call.store(answer)
                done = True
            del answer
        except Exception as error:
            failed = True
            raise RuntimeError(self._failure(f"dispatch of {call}", error)) from error
        except BaseException:
            failed = True
            raise
        finally:
            kept = call.close()
            self._watched += (memory for _, memory in kept)
        if kept and not failed:
            names = ", ".join(name for name, _ in kept)
            raise RuntimeError(
                f"{self.name} ({self.where}): dispatch of {op} kept an array of {names} after the call. The "
                "memory is another tensor's soon: keep a copy"
            )
        return done

    def supports(self, op: str, tensors: list[Row], params: dict[str, Any], outs: list[Row | None]) -> str | None:
        """Return why the class does not take a call; None: it may."""
        function = getattr(self.backend, "supports", None)
        if function is None:
            return None
        call = _Call(self, op, tensors, params, outs)
        call.describes = True
        try:
            answer = function(op, list(call.inputs), params)
            if isinstance(answer, str):
                return answer or "supports() said no"
            if answer is True or answer is False:
                return None if answer else "supports() returned False"
            raise TypeError(f"it returned {type(answer).__name__}, expected True, False or a reason as str")
        except Exception as error:
            raise RuntimeError(self._failure(f"supports() for {call}", error)) from error
        finally:
            call.close()

    def _failure(self, what: str, error: Exception) -> str:
        text = str(error)
        if len(text) > 2 * MESSAGE:
            text = f"{text[:MESSAGE]} ... {text[-MESSAGE:]}"
        return f"{self.name} ({self.where}): {what} failed: {type(error).__name__}: {text}"

    # ---- Memory
    def allocate(self, nbytes: int) -> int:
        """Return the address of new memory."""
        padded = self.memory.padded_size(nbytes)
        if not isinstance(padded, int) or padded < nbytes:
            raise ValueError(f"padded_size({nbytes}) returned {padded!r}, expected an integer of at least {nbytes}")
        return self._address("allocate", self.memory.allocate(padded), padded)

    def free(self, address: int) -> None:
        """Take memory back."""
        self._release(address, self.memory.free)

    def allocate_pinned(self, nbytes: int) -> int:
        """Return the address of pinned host memory."""
        return self._address("allocate_pinned", self.memory.allocate_pinned(nbytes), nbytes)

    def free_pinned(self, address: int) -> None:
        """Take pinned memory back."""
        self._release(address, self.memory.free_pinned)

    def _address(self, function: str, given: Any, nbytes: int) -> int:
        if isinstance(given, int) and not isinstance(given, bool):
            if not 0 < given < 1 << 64:
                raise ValueError(f"{function}({nbytes}) returned {given}, expected an address: 1 to 2**64 - 1")
            return given
        try:
            size = memoryview(given).nbytes
            start = ctypes.c_char.from_buffer(given) if size >= nbytes else None
        except (TypeError, ValueError, BufferError) as error:
            expected = "expected an address or an object with a writable, contiguous buffer"
            raise TypeError(f"{function}({nbytes}) returned {type(given).__name__}, {expected}: {error}") from None
        if start is None:
            raise ValueError(f"{function}({nbytes}) returned a buffer of {size} bytes")
        address = ctypes.addressof(start)
        self._buffers[address] = start  # holds the buffer, which can be neither closed nor resized meanwhile
        return address

    def _release(self, address: int, free: Callable[[int], None]) -> None:
        """Free memory, or wait until no array looks at any: a traceback may hold some, too."""
        self._to_free.append((address, free))
        self._watched = [memory for memory in self._watched if sys.getrefcount(memory) > 3]  # 3: list, loop, argument
        while self._to_free and not self._watched:
            address, free = self._to_free.pop()
            if self._buffers.pop(address, None) is None:
                free(address)

    def copy_in(self, destination: int, source: int, nbytes: int) -> None:
        """Copy from the host to the device."""
        with _load.core().host_memory(source, nbytes, False) as data:
            self.memory.copy_in(destination, data)

    def copy_out(self, destination: int, source: int, nbytes: int) -> None:
        """Copy from the device to the host."""
        with _load.core().host_memory(destination, nbytes, True) as data:
            self.memory.copy_out(source, data)

    def copy_within(self, destination: int, source: int, nbytes: int) -> None:
        """Copy inside the device."""
        self.memory.copy_within(destination, source, nbytes)


# ---- Registering ----------------------------------------------------------------------------------------------------
PROPERTIES: dict[str, type] = {
    "name": str,
    "driver_version": str,
    "compute_units": int,
    "clock_mhz": int,
    "peak_flops": float,
    "peak_bandwidth": float,
}

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


def _make_adapter(name: str, cls: type, index: int) -> _Adapter:
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
    return _Adapter(name, backend, memory, index)


def _overrides(memory: MemoryAllocator, method: str) -> bool:
    return getattr(type(memory), method) is not getattr(MemoryAllocator, method) or method in vars(memory)


def _device_spec(adapter: _Adapter) -> dict[str, Any]:
    memory = adapter.memory
    sizes = {key: getattr(memory, key) for key in ("alignment", "total_memory", "max_allocation")}
    for key, value in sizes.items():
        least = 0 if key == "max_allocation" else 1
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"{adapter.name}: {type(memory).__name__}.{key} is {value!r}, expected bytes as an int")
    return {"name": f"{adapter.name} {adapter.index}", **sizes}


def _checked_property(key: Any, value: Any) -> Any:
    if key not in PROPERTIES:
        guess = did_you_mean(str(key), PROPERTIES)
        raise ValueError(f"init_runtime() returned the property {key!r}{guess} (properties: {', '.join(PROPERTIES)})")
    wanted = PROPERTIES[key]
    if isinstance(value, bool) or not isinstance(value, (int, float) if wanted is float else wanted):
        found = type(value).__name__
        raise TypeError(f"init_runtime() returned {key}={value!r} ({found}), expected {wanted.__name__}")
    if wanted is int and value not in range(1 << 32):
        raise ValueError(f"init_runtime() returned {key}={value}, expected 0 to 2**32 - 1")
    return value


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
