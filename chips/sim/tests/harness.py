# SPDX-License-Identifier: Apache-2.0
"""Calls kernels of the plugin straight through its C tables, with no Torch-FL in between, and compares them with the CPU.

`Chip` loads libfl_sim.so and plays the host: it allocates device memory, lays torch tensors into it, applies the
contract flags of a kernel's row as fl_plugin.h says, runs it, and reads the outputs back.
"""

from __future__ import annotations

import ctypes as C
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import torch

HERE = pathlib.Path(__file__).resolve().parent

DTYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5,
    torch.float32: 6, torch.float64: 7, torch.complex32: 8, torch.complex64: 9, torch.complex128: 10, torch.bool: 11,
    torch.bfloat16: 12, torch.uint16: 13, torch.uint32: 14, torch.uint64: 15, torch.float8_e5m2: 16,
    torch.float8_e4m3fn: 17, torch.float8_e5m2fnuz: 18, torch.float8_e4m3fnuz: 19, torch.float8_e8m0fnu: 20,
}  # fmt: skip
PROMOTE, BROADCAST, CONTIGUOUS_INPUTS, CONTIGUOUS_OUTPUTS, IN_PLACE_SAFE = 1, 2, 4, 8, 16
RANDOM, CHANNELS_LAST_OK, CHANNELS_LAST_ONLY = 64, 128, 256
OK, UNSUPPORTED = 0, 1

NONE, TENSOR, BOOLEAN, INTEGER, REAL, COMPLEX, STRING, INTEGERS, REALS, BOOLEANS, TENSORS, VALUES, DTYPE, OPAQUE = (
    range(14)
)


class FlTensor(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("flags", C.c_uint32), ("address", C.c_uint64), ("dtype", C.c_int32),
        ("ndim", C.c_int32), ("sizes", C.POINTER(C.c_int64)), ("strides", C.POINTER(C.c_int64)), ("numel", C.c_int64),
    ]  # fmt: skip


class Union(C.Union):
    _fields_ = [("p", C.c_void_p), ("i", C.c_int64), ("d", C.c_double), ("c", C.c_double * 2), ("s", C.c_char_p)]


class FlValue(C.Structure):
    _fields_ = [("kind", C.c_uint32), ("count", C.c_uint32), ("u", Union)]


class FlKernel(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("flags", C.c_uint32), ("op", C.c_char_p), ("run", C.c_void_p),
        ("supports", C.c_void_p), ("user_data", C.c_void_p), ("dtypes", C.c_uint64), ("constraint", C.c_uint32),
        ("reserved", C.c_uint32),
    ]  # fmt: skip


class FlCall(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("device_index", C.c_int32), ("device", C.c_void_p), ("stream", C.c_void_p),
        ("kernel", C.POINTER(FlKernel)), ("args", C.POINTER(FlValue)), ("n_args", C.c_uint32), ("n_outs", C.c_uint32),
        ("outs", C.POINTER(C.POINTER(FlTensor))), ("compute_dtype", C.c_int32), ("reserved", C.c_int32),
        ("philox_seed", C.c_uint64), ("philox_offset", C.c_uint64),
    ]  # fmt: skip


def table(*names: str) -> list[tuple[str, Any]]:
    return [("struct_size", C.c_uint32), *((n, C.c_void_p) for n in names)]


class DeviceApi(C.Structure):
    _fields_ = table("count", "properties", "open", "close", "synchronize")


class MemoryApi(C.Structure):
    _fields_ = table(
        "alloc", "free", "copy", "copy_peer", "fill", "host_alloc", "host_free", "host_register", "host_unregister",
        "map", "unmap", "info",
    )  # fmt: skip


class StreamApi(C.Structure):
    _fields_ = table(
        "create", "destroy", "synchronize", "query", "event_create", "event_destroy", "event_record", "event_wait",
        "event_synchronize", "event_query", "event_elapsed", "native_handle",
    )  # fmt: skip


class FlPlugin(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("abi_major", C.c_uint32), ("abi_minor", C.c_uint32), ("n_kernels", C.c_uint32),
        ("name", C.c_char_p), ("vendor", C.c_char_p), ("version", C.c_char_p), ("device", C.POINTER(DeviceApi)),
        ("memory", C.POINTER(MemoryApi)), ("stream", C.POINTER(StreamApi)),
        ("kernels", C.POINTER(C.POINTER(FlKernel))),
    ]  # fmt: skip


class FlHost(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("abi_major", C.c_uint32), ("abi_minor", C.c_uint32), ("reserved", C.c_uint32),
        ("version", C.c_char_p), ("log", C.c_void_p), ("set_error", C.c_void_p), ("scratch", C.c_void_p),
        ("current_stream", C.c_void_p),
    ]  # fmt: skip


SET_ERROR = C.CFUNCTYPE(None, C.c_int32, C.c_char_p)
LOG = C.CFUNCTYPE(None, C.c_int32, C.c_char_p)
STATUS = C.c_int32


def library_path() -> str:
    """FL_SIM_LIBRARY, or a build of this folder's parent under build/sim-tests (made when missing)."""
    if given := os.environ.get("FL_SIM_LIBRARY"):
        return given
    build = HERE.parents[2] / "build" / "sim-tests"
    if not (build / "CMakeCache.txt").exists():
        subprocess.run(["cmake", "-S", str(HERE.parent), "-B", str(build)], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["cmake", "--build", str(build), "-j2"], check=True, stdout=subprocess.DEVNULL)
    return str(build / "libfl_sim.so")


def load_copy(path: str) -> C.CDLL:
    """The plugin in `path`, loaded from a copy of its folder's libraries.

    The ABI gives a plugin one host for life. A host in the same process that loaded the same file (torch_fl, or another
    Chip) would lose its own to this one, and with it the texts of its errors.
    """
    source = pathlib.Path(path)
    with tempfile.TemporaryDirectory() as folder:
        for library in source.parent.glob("*.so"):
            shutil.copy(library, folder)
        return C.CDLL(str(pathlib.Path(folder) / source.name))


class PluginError(RuntimeError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Placed:
    """A torch tensor's whole storage in device memory; views of one storage share it."""

    def __init__(self, chip: Chip, tensor: torch.Tensor) -> None:
        self.chip, self.storage = chip, tensor.untyped_storage()
        self.bytes = self.storage.nbytes()
        self.address = chip.alloc(self.bytes) if self.bytes else 0
        if self.bytes:
            chip.copy(self.address, self.storage.data_ptr(), self.bytes, 0)

    def read_back(self) -> None:
        if self.bytes:
            self.chip.copy(self.storage.data_ptr(), self.address, self.bytes, 1)

    def free(self) -> None:
        if self.bytes:
            self.chip.free(self.address)


class Chip:
    """The plugin, its first device open, and the host's side of a kernel call."""

    def __init__(self, path: str | None = None) -> None:
        self.library = load_copy(path or library_path())
        self.errors: list[str] = []
        self._set_error = SET_ERROR(lambda status, text: self.errors.append(text.decode()))
        self._log = LOG(lambda level, text: None)
        self.host = FlHost(
            C.sizeof(FlHost), 1, 0, 0, b"test", C.cast(self._log, C.c_void_p), C.cast(self._set_error, C.c_void_p)
        )
        self.library.fl_plugin_get.restype = C.POINTER(FlPlugin)
        self.plugin = self.library.fl_plugin_get(C.byref(self.host)).contents
        self.kernels = {}
        for i in range(self.plugin.n_kernels):
            row = self.plugin.kernels[i].contents
            name = row.op.decode()
            assert name not in self.kernels, f"two rows for {name}"
            self.kernels[name] = row
        device = C.c_void_p()
        self.check(self.device_call("open", C.c_int32, C.POINTER(C.c_void_p))(0, C.byref(device)))
        self.device = device
        self.stream = C.c_void_p()

    # ---- Plumbing
    def _call(self, api: Any, name: str, *types: Any) -> Any:
        return C.CFUNCTYPE(STATUS, *types)(getattr(api.contents, name))

    def device_call(self, name: str, *types: Any) -> Any:
        return self._call(self.plugin.device, name, *types)

    def memory_call(self, name: str, *types: Any) -> Any:
        return self._call(self.plugin.memory, name, *types)

    def stream_call(self, name: str, *types: Any) -> Any:
        return self._call(self.plugin.stream, name, *types)

    def check(self, status: int) -> None:
        if status != OK:
            raise PluginError(status, self.errors[-1] if self.errors else f"status {status} without a message")

    def alloc(self, size: int) -> int:
        address = C.c_uint64()
        call = self.memory_call("alloc", C.c_void_p, C.c_uint64, C.POINTER(C.c_uint64))
        self.check(call(self.device, (size + 63) // 64 * 64, C.byref(address)))
        return address.value

    def free(self, address: int) -> None:
        self.check(self.memory_call("free", C.c_void_p, C.c_uint64)(self.device, address))

    def copy(self, dst: int, src: int, size: int, kind: int) -> None:
        call = self.memory_call("copy", C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint64, C.c_int32)
        self.check(call(self.device, self.stream, dst, src, size, kind))
        self.synchronize()

    def synchronize(self) -> None:
        self.check(self.device_call("synchronize", C.c_void_p)(self.device))

    # ---- Kernel calls
    def run(
        self, op: str, args: Sequence[Any], outs: Sequence[torch.Tensor | None], compute: torch.dtype,
        seed: int = 0, offset: int = 0,
    ) -> None:  # fmt: skip
        """Runs one row; `args` by schema position (contract flags already applied), `outs` written in place.

        Raises PluginError with status UNSUPPORTED where supports() says no.
        """
        packer = Packer(self)
        try:
            row = self.kernels[op]
            values = (FlValue * max(len(args), 1))(*[packer.value(a) for a in args])
            tensors = [None if o is None else packer.tensor(o) for o in outs]
            pointers = (C.POINTER(FlTensor) * max(len(outs), 1))(
                *[C.POINTER(FlTensor)() if t is None else C.pointer(t) for t in tensors]
            )
            call = FlCall(
                C.sizeof(FlCall), 0, self.device, self.stream, C.pointer(row), values, len(args), len(outs), pointers,
                DTYPES[compute], 0, seed, offset,
            )  # fmt: skip
            function = C.CFUNCTYPE(STATUS, C.POINTER(FlCall))
            if row.supports:
                self.check(function(row.supports)(C.byref(call)))
            self.check(function(row.run)(C.byref(call)))
            self.synchronize()
            packer.read_back([o for o in outs if o is not None])
        finally:
            packer.free()


class Packer:
    """fl_values and fl_tensors of one call, and the device memory behind them."""

    def __init__(self, chip: Chip) -> None:
        self.chip, self.placed, self.keep = chip, {}, []

    def tensor(self, t: torch.Tensor) -> FlTensor:
        key = t.untyped_storage()._cdata
        if key not in self.placed:
            self.placed[key] = Placed(self.chip, t)
        base = self.placed[key].address
        sizes = (C.c_int64 * max(t.dim(), 1))(*t.size())
        strides = (C.c_int64 * max(t.dim(), 1))(*t.stride())
        flags = 1 if t.is_contiguous() else 0
        if t.dim() in (4, 5):
            fmt = torch.channels_last if t.dim() == 4 else torch.channels_last_3d
            flags |= 2 if t.is_contiguous(memory_format=fmt) else 0
        address = base + t.storage_offset() * t.element_size() if t.numel() else 0
        self.keep += [sizes, strides, t]
        return FlTensor(C.sizeof(FlTensor), flags, address, DTYPES[t.dtype], t.dim(), sizes, strides, t.numel())

    def _list(self, kind: int, ctype: Any, items: Sequence[Any]) -> FlValue:
        array = (ctype * max(len(items), 1))(*items)
        self.keep.append(array)
        return FlValue(kind, len(items), Union(p=C.cast(array, C.c_void_p).value))

    def value(self, a: Any) -> FlValue:
        if a is None:
            return FlValue(NONE, 0, Union(i=0))
        if isinstance(a, torch.Tensor):
            t = self.tensor(a)
            self.keep.append(t)
            return FlValue(TENSOR, 0, Union(p=C.addressof(t)))
        if isinstance(a, bool):
            return FlValue(BOOLEAN, 0, Union(i=int(a)))
        if isinstance(a, int):
            return FlValue(INTEGER, 0, Union(i=a))
        if isinstance(a, float):
            return FlValue(REAL, 0, Union(d=a))
        if isinstance(a, complex):
            return FlValue(COMPLEX, 0, Union(c=(a.real, a.imag)))
        if isinstance(a, str):
            text = C.create_string_buffer(a.encode())
            self.keep.append(text)
            return FlValue(STRING, 0, Union(p=C.addressof(text)))
        if isinstance(a, torch.dtype):
            return FlValue(DTYPE, 0, Union(i=DTYPES[a]))
        if isinstance(a, (list, tuple)):
            return self.sequence(a)
        return FlValue(OPAQUE, 0, Union(i=0))

    def sequence(self, a: Sequence[Any]) -> FlValue:
        if any(isinstance(x, torch.Tensor) for x in a):
            tensors = [None if x is None else self.tensor(x) for x in a]
            self.keep.append(tensors)
            return self._list(TENSORS, C.c_void_p, [None if t is None else C.addressof(t) for t in tensors])
        if all(isinstance(x, bool) for x in a) and a:
            return self._list(BOOLEANS, C.c_uint8, a)
        if all(isinstance(x, int) for x in a):
            return self._list(INTEGERS, C.c_int64, a)
        return self._list(REALS, C.c_double, [float(x) for x in a])

    def read_back(self, outs: Sequence[torch.Tensor]) -> None:
        for key in {o.untyped_storage()._cdata for o in outs}:
            self.placed[key].read_back()

    def free(self) -> None:
        for p in self.placed.values():
            p.free()
