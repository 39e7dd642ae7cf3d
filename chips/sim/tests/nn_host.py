# SPDX-License-Identifier: Apache-2.0
"""A host in miniature: loads the plugin through its C ABI and runs single kernels on torch CPU tensors."""

from __future__ import annotations

import ctypes as c
import os
from pathlib import Path
from typing import Any

import torch

OK, UNSUPPORTED = 0, 1
CONTIGUOUS_INPUTS, CONTIGUOUS_OUTPUTS = 1 << 2, 1 << 3

_DTYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10,
    torch.bool: 11, torch.bfloat16: 12, torch.uint16: 13, torch.uint32: 14, torch.uint64: 15,
}  # fmt: skip


class Tensor(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("address", c.c_uint64), ("dtype", c.c_int32),
        ("ndim", c.c_int32), ("sizes", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("numel", c.c_int64),
    ]  # fmt: skip


class _Union(c.Union):
    _fields_ = [("pointer", c.c_void_p), ("i", c.c_int64), ("d", c.c_double), ("c", c.c_double * 2)]


class Value(c.Structure):
    _fields_ = [("kind", c.c_uint32), ("count", c.c_uint32), ("u", _Union)]


class Kernel(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("flags", c.c_uint32), ("op", c.c_char_p), ("run", c.c_void_p),
        ("supports", c.c_void_p), ("user_data", c.c_void_p), ("dtypes", c.c_uint64), ("constraint", c.c_uint32),
        ("reserved", c.c_uint32),
    ]  # fmt: skip


class KernelCall(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("device_index", c.c_int32), ("device", c.c_void_p), ("stream", c.c_void_p),
        ("kernel", c.POINTER(Kernel)), ("args", c.POINTER(Value)), ("n_args", c.c_uint32), ("n_outs", c.c_uint32),
        ("outs", c.POINTER(c.POINTER(Tensor))), ("compute_dtype", c.c_int32), ("reserved", c.c_int32),
        ("philox_seed", c.c_uint64), ("philox_offset", c.c_uint64),
    ]  # fmt: skip


class DeviceApi(c.Structure):
    _fields_ = [(n, c.c_uint64 if n == "size" else c.c_void_p)
                for n in ("size", "count", "properties", "open", "close", "synchronize")]  # fmt: skip


class MemoryApi(c.Structure):
    _fields_ = [(n, c.c_uint64 if n == "size" else c.c_void_p) for n in ("size", "alloc", "free", "copy")]


class Plugin(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("abi_major", c.c_uint32), ("abi_minor", c.c_uint32), ("n_kernels", c.c_uint32),
        ("name", c.c_char_p), ("vendor", c.c_char_p), ("version", c.c_char_p), ("device", c.POINTER(DeviceApi)),
        ("memory", c.POINTER(MemoryApi)), ("stream", c.c_void_p), ("kernels", c.POINTER(c.POINTER(Kernel))),
    ]  # fmt: skip


_LOG = c.CFUNCTYPE(None, c.c_int32, c.c_char_p)
_SET_ERROR = c.CFUNCTYPE(None, c.c_int32, c.c_char_p)


class HostServices(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("abi_major", c.c_uint32), ("abi_minor", c.c_uint32), ("reserved", c.c_uint32),
        ("version", c.c_char_p), ("log", _LOG), ("set_error", _SET_ERROR), ("scratch", c.c_void_p),
        ("current_stream", c.c_void_p),
    ]  # fmt: skip


class KernelFailed(RuntimeError):
    """The kernel, or the device afterwards, reported an error."""


class Unsupported(RuntimeError):
    """The row's element types or its supports() refuse the call."""


def find_plugin() -> Path:
    """The library to test: FL_SIM_LIBRARY, else the newest one below the repository or the installed package."""
    named = os.environ.get("FL_SIM_LIBRARY")
    if named:
        return Path(named)
    root = Path(__file__).resolve().parents[3]
    found = sorted(root.glob("**/libfl_sim.so"), key=lambda p: p.stat().st_mtime)
    if not found:
        raise FileNotFoundError(f"no libfl_sim.so below {root}: build chips/sim or set FL_SIM_LIBRARY")
    return found[-1]


def _function(pointer: int, *args: Any) -> Any:
    return c.CFUNCTYPE(c.c_int32, *args)(pointer)


class Host:
    """One opened device of the plugin."""

    def __init__(self, path: Path) -> None:
        self.error = ""
        library = c.CDLL(str(path))
        services = HostServices(c.sizeof(HostServices), 1, 0, 0, b"test", _LOG(lambda level, text: None),
                                _SET_ERROR(self._set_error), None, None)  # fmt: skip
        self._keep: list[Any] = [library, services]
        library.fl_plugin_get.restype = c.POINTER(Plugin)
        self.plugin = library.fl_plugin_get(c.byref(services)).contents
        self.rows = {}
        for i in range(self.plugin.n_kernels):
            self.rows[self.plugin.kernels[i].contents.op.decode()] = self.plugin.kernels[i]
        self.device = c.c_void_p()
        count = c.c_int32()
        device, memory = self.plugin.device.contents, self.plugin.memory.contents
        self._check(_function(device.count, c.POINTER(c.c_int32))(c.byref(count)))
        self._check(_function(device.open, c.c_int32, c.POINTER(c.c_void_p))(0, c.byref(self.device)))
        self._sync = _function(device.synchronize, c.c_void_p)
        self._alloc = _function(memory.alloc, c.c_void_p, c.c_uint64, c.POINTER(c.c_uint64))
        self._free = _function(memory.free, c.c_void_p, c.c_uint64)
        self._copy = _function(memory.copy, c.c_void_p, c.c_void_p, c.c_uint64, c.c_uint64, c.c_uint64, c.c_int32)

    def _set_error(self, status: int, text: bytes) -> None:
        self.error = text.decode()

    def _check(self, status: int) -> None:
        if status != OK:
            raise KernelFailed(self.error)

    def run(self, op: str, args: list[Any], outs: list[torch.Tensor | None]) -> None:
        """Runs the row `op`; `outs` are written in place. An argument that is also an output is mutated."""
        row = self.rows[op].contents
        call = _CallBuilder(self, row)
        raw = call.build(self.rows[op], args, outs)
        try:
            if row.dtypes and not row.dtypes >> raw.compute_dtype & 1:
                raise Unsupported("element type")
            if row.supports and _function(row.supports, c.POINTER(KernelCall))(c.byref(raw)) != OK:
                raise Unsupported(self.error)
            status = _function(row.run, c.POINTER(KernelCall))(c.byref(raw))
            done = self._sync(self.device)
            self._check(status or done)
            call.read_back()
        finally:
            call.release()

    def upload(self, tensor: torch.Tensor) -> tuple[int, int]:
        """Copies the memory that a tensor spans to the device: address of its first element, bytes."""
        span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride())) + 1 if tensor.numel() else 0
        size = span * tensor.element_size()
        if size == 0:
            return 0, 0
        address = c.c_uint64()
        self._check(self._alloc(self.device, (size + 63) // 64 * 64, c.byref(address)))
        self._check(self._copy(self.device, None, address, tensor.data_ptr(), size, 0))
        return address.value, size

    def download(self, address: int, size: int, tensor: torch.Tensor) -> None:
        self._check(self._copy(self.device, None, tensor.data_ptr(), address, size, 1))
        self._check(self._sync(self.device))

    def free(self, address: int) -> None:
        self._check(self._free(self.device, address))


class _CallBuilder:
    def __init__(self, host: Host, row: Kernel) -> None:
        self.host, self.row = host, row
        self.keep: list[Any] = []
        self.uploads: dict[int, tuple[Tensor, int, int]] = {}  # by id of the torch tensor
        self.outs: list[tuple[torch.Tensor, int, int]] = []

    def build(self, row: Any, args: list[Any], outs: list[torch.Tensor | None]) -> KernelCall:
        out_array = (c.POINTER(Tensor) * max(len(outs), 1))()
        for i, out in enumerate(outs):
            if out is not None:
                described = self.tensor(out)
                out_array[i] = c.pointer(described)
                self.outs.append((out, described.address, self.uploads[id(out)][2]))
        values = (Value * max(len(args), 1))()
        dtype = -1
        for i, arg in enumerate(args):
            values[i] = self.value(arg)
            first = arg[0] if isinstance(arg, (list, tuple)) and arg else arg
            if dtype < 0 and isinstance(first, torch.Tensor):
                dtype = _DTYPES[first.dtype]
        self.keep += [out_array, values]
        return KernelCall(c.sizeof(KernelCall), 0, self.host.device, None, row, values, len(args), len(outs), out_array,
                          dtype, 0, 0, 0)  # fmt: skip

    def tensor(self, t: torch.Tensor) -> Tensor:
        if id(t) in self.uploads:
            return self.uploads[id(t)][0]
        source = t.contiguous() if self.row.flags & CONTIGUOUS_INPUTS else t
        address, size = self.host.upload(source)
        sizes = (c.c_int64 * max(t.dim(), 1))(*source.shape)
        strides = (c.c_int64 * max(t.dim(), 1))(*source.stride())
        flags = int(source.is_contiguous())
        described = Tensor(c.sizeof(Tensor), flags, address, _DTYPES[t.dtype], t.dim(), sizes, strides, t.numel())
        self.keep += [t, source, sizes, strides, described]
        self.uploads[id(t)] = (described, address, size)
        return described

    def value(self, arg: Any) -> Value:
        result = Value()
        if arg is None:
            return result
        if isinstance(arg, torch.Tensor):
            result.kind, result.u.pointer = 1, c.cast(c.pointer(self.tensor(arg)), c.c_void_p)
        elif isinstance(arg, bool):
            result.kind, result.u.i = 2, int(arg)
        elif isinstance(arg, int):
            result.kind, result.u.i = 3, arg
        elif isinstance(arg, float):
            result.kind, result.u.d = 4, arg
        elif isinstance(arg, str):
            result.kind = 6
            self.pointer(result, c.create_string_buffer(arg.encode()))
        elif isinstance(arg, torch.dtype):
            result.kind, result.u.i = 12, _DTYPES[arg]
        elif isinstance(arg, (list, tuple)):
            self.list_value(result, list(arg))
        else:
            raise TypeError(f"no fl_value for {arg!r}")
        return result

    def pointer(self, result: Value, memory: Any) -> None:
        self.keep.append(memory)
        result.u.pointer = c.cast(memory, c.c_void_p)

    def list_value(self, result: Value, items: list[Any]) -> None:
        result.count = len(items)
        if any(isinstance(item, torch.Tensor) for item in items):
            array = (c.POINTER(Tensor) * len(items))()
            for i, item in enumerate(items):
                if item is not None:
                    array[i] = c.pointer(self.tensor(item))
            result.kind = 10
            self.pointer(result, array)
        elif items and isinstance(items[0], bool):
            result.kind = 9
            self.pointer(result, (c.c_uint8 * len(items))(*items))
        else:
            result.kind = 7
            self.pointer(result, (c.c_int64 * max(len(items), 1))(*items))

    def read_back(self) -> None:
        for tensor, address, size in self.outs:
            if size:
                self.host.download(address, size, tensor)

    def release(self) -> None:
        for _, address, _ in self.uploads.values():
            if address:
                self.host.free(address)
