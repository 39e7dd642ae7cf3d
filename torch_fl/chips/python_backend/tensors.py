# SPDX-License-Identifier: Apache-2.0
"""Tensors as `dispatch()` sees them."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from torch_fl.chips.python_backend.adapter import Call

Array = Any  # numpy.ndarray: numpy is imported by those who use it
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
BITS = {1: "uint8", 2: "uint16", 4: "uint32"}


class TensorView:
    """A tensor argument or an output, valid during the call it came with."""

    __slots__ = ("_address", "_call", "_memory", "_number", "dtype", "name", "shape", "strides", "writable")

    def __init__(self, call: Call, row: Row, writable: bool) -> None:
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
