# SPDX-License-Identifier: Apache-2.0
"""Plays the host for the bare plugin: its C tables through ctypes, with neither Torch-FL nor PyTorch in between."""

from __future__ import annotations

import ctypes as C
import fcntl
import functools
import os
import pathlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Any

import numpy as np

HERE = pathlib.Path(__file__).resolve().parent

OK, UNSUPPORTED, OUT_OF_MEMORY, INVALID_ARGUMENT, DEVICE_LOST, INTERNAL, NOT_READY = range(7)
HOST_COHERENT, UNIFIED, PEER_COPY, TIMED_EVENTS = 1, 2, 4, 8
TO_DEVICE, TO_HOST, ON_DEVICE = range(3)
TIMED = 1
MEMORY_KINDS = ("svm", "svm-coarse", "usm", "usm-device", "buffer")

P, U32, U64, I32, I64 = C.c_void_p, C.c_uint32, C.c_uint64, C.c_int32, C.c_int64


class Properties(C.Structure):
    _fields_ = [
        ("struct_size", U32), ("capabilities", U32), ("name", C.c_char * 128), ("driver_version", C.c_char * 64),
        ("total_memory", U64), ("max_allocation", U64), ("alignment", U64), ("size_granularity", U64),
        ("padding", U64), ("dtypes", U64), ("compute_units", U32), ("clock_mhz", U32), ("peak_flops", C.c_double),
        ("peak_bandwidth", C.c_double),
    ]  # fmt: skip


class CompileOptions(C.Structure):
    _fields_ = [("struct_size", U32), ("n_defines", U32), ("defines", C.POINTER(C.c_char_p)), ("flags", C.c_char_p)]


class Launch(C.Structure):
    _fields_ = [
        ("struct_size", U32), ("work_dim", U32), ("global_size", U64 * 3), ("local_size", U64 * 3), ("n_args", U32),
        ("local_bytes", U32), ("args", C.POINTER(P)), ("arg_sizes", C.POINTER(U32)),
    ]  # fmt: skip


def table(**functions: Sequence[Any]) -> type[C.Structure]:
    """A table of functions that return a status; each is given by its parameters' types."""
    fields: list[tuple[str, Any]] = [("struct_size", U32)]
    fields += [(name, C.CFUNCTYPE(I32, *types)) for name, types in functions.items()]
    return type("Table", (C.Structure,), {"_fields_": fields})


DeviceApi = table(count=[C.POINTER(I32)], properties=[I32, C.POINTER(Properties)], open=[I32, C.POINTER(P)], close=[P],
                  synchronize=[P])  # fmt: skip
MemoryApi = table(
    alloc=[P, U64, C.POINTER(U64)], free=[P, U64], copy=[P, P, U64, U64, U64, I32], copy_peer=[P, U64, P, U64, U64, P],
    fill=[P, P, U64, P, U32, U64], host_alloc=[P, U64, C.POINTER(P)], host_free=[P, P], host_register=[P, P, U64],
    host_unregister=[P, P], map=[P, U64, U64, C.POINTER(P)], unmap=[P, U64, P],
    info=[P, C.POINTER(U64), C.POINTER(U64)],
)  # fmt: skip
StreamApi = table(
    create=[P, I32, C.POINTER(P)], destroy=[P, P], synchronize=[P, P], query=[P, P],
    event_create=[P, U32, C.POINTER(P)], event_destroy=[P, P], event_record=[P, P, P], event_wait=[P, P, P],
    event_synchronize=[P, P], event_query=[P, P], event_elapsed=[P, P, P, C.POINTER(I64)],
    native_handle=[P, P, C.POINTER(P)],
)  # fmt: skip


class CompilerApi(C.Structure):
    _fields_ = [
        ("struct_size", U32), ("reserved", U32), ("dialect", C.c_char_p),
        ("identity", C.CFUNCTYPE(I32, P, C.c_char_p, U64)),
        ("compile", C.CFUNCTYPE(I32, P, C.c_char_p, C.POINTER(CompileOptions), C.POINTER(P))),
        ("save", C.CFUNCTYPE(I32, P, P, C.POINTER(U64))), ("load", C.CFUNCTYPE(I32, P, P, U64, C.POINTER(P))),
        ("release", C.CFUNCTYPE(I32, P)),
        ("launch", C.CFUNCTYPE(I32, P, P, P, C.c_char_p, C.POINTER(Launch))),
    ]  # fmt: skip


class FlPlugin(C.Structure):
    _fields_ = [
        ("struct_size", U32), ("abi_major", U32), ("abi_minor", U32), ("n_kernels", U32), ("name", C.c_char_p),
        ("vendor", C.c_char_p), ("version", C.c_char_p), ("device", C.POINTER(DeviceApi)),
        ("memory", C.POINTER(MemoryApi)), ("stream", C.POINTER(StreamApi)), ("kernels", P),
        ("compiler", C.POINTER(CompilerApi)), ("graph", P), ("collectives", P), ("profiler", P),
    ]  # fmt: skip


class FlHost(C.Structure):
    _fields_ = [
        ("struct_size", U32), ("abi_major", U32), ("abi_minor", U32), ("reserved", U32), ("version", C.c_char_p),
        ("log", P), ("set_error", C.CFUNCTYPE(None, I32, C.c_char_p)), ("scratch", P), ("current_stream", P),
    ]  # fmt: skip


class PluginError(RuntimeError):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"status {status}: {message}")
        self.status, self.message = status, message


@functools.cache
def library_path() -> str:
    """FL_OPENCL_LIBRARY, or a build of this folder's parent under build/opencl-tests (made when missing)."""
    if given := os.environ.get("FL_OPENCL_LIBRARY"):
        return given
    build = HERE.parents[2] / "build" / "opencl-tests"
    build.mkdir(parents=True, exist_ok=True)
    with open(build / "lock", "w") as lock:  # pytest's workers come here at the same time
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (build / "CMakeCache.txt").exists():
            subprocess.run(["cmake", "-S", str(HERE.parent), "-B", str(build)], check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["cmake", "--build", str(build), "-j2"], check=True, stdout=subprocess.DEVNULL)
    return str(build / "libfl_opencl.so")


class Plugin:
    """One instance of the library. Settings are read when devices are counted, so each instance may have its own."""

    def __init__(self, **settings: str) -> None:
        saved = {name: os.environ.get(name) for name in settings}
        os.environ.update(settings)
        try:
            with tempfile.TemporaryDirectory() as folder:  # another file is another instance
                self.library = C.CDLL(shutil.copy(library_path(), folder))
            self.last = (OK, "")
            self._set_error = FlHost._fields_[6][1](self._note)
            self.host = FlHost(C.sizeof(FlHost), 1, 0, 0, b"test", None, self._set_error)
            self.library.fl_plugin_get.restype = C.POINTER(FlPlugin)
            found = self.library.fl_plugin_get(C.byref(self.host))
            if not found:
                raise PluginError(*self.last)
            self.tables = found.contents
            self.device, self.memory = self.tables.device.contents, self.tables.memory.contents
            self.stream, self.compiler = self.tables.stream.contents, self.tables.compiler.contents
            count = I32()
            self.check(self.device.count(C.byref(count)))
            self.count = count.value
        finally:
            for name, value in saved.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def _note(self, status: int, text: bytes) -> None:
        self.last = (status, text.decode(errors="replace"))

    def check(self, status: int) -> None:
        if status == OK:
            return
        assert self.last[0] == status, f"status {status} came, but the message was of {self.last}"
        raise PluginError(status, self.last[1])

    def properties(self, index: int) -> Properties:
        p = Properties(struct_size=C.sizeof(Properties))
        self.check(self.device.properties(index, C.byref(p)))
        return p


class Chip:
    """One device, open."""

    def __init__(self, plugin: Plugin, index: int) -> None:
        self.plugin, self.index, self.check = plugin, index, plugin.check
        self.memory, self.streams, self.compiler = plugin.memory, plugin.stream, plugin.compiler
        self.properties = plugin.properties(index)
        self.handle = self._made(plugin.device.open, index)

    def _made(self, function: Any, *args: Any, kind: Any = P) -> Any:
        out = kind()
        self.check(function(*args, C.byref(out)))
        return out.value

    def close(self) -> None:
        self.plugin.device.close(self.handle)

    def synchronize(self) -> None:
        self.check(self.plugin.device.synchronize(self.handle))

    # ---- Memory
    def alloc(self, size: int) -> int:
        step = self.properties.size_granularity
        return self._made(self.memory.alloc, self.handle, (size + step - 1) // step * step, kind=U64)

    def free(self, *addresses: int) -> None:
        for address in addresses:
            self.check(self.memory.free(self.handle, address))

    def copy(self, dst: int, src: int, size: int, kind: int, stream: Any = None) -> None:
        self.check(self.memory.copy(self.handle, stream, dst, src, size, kind))

    def fill(self, dst: int, pattern: bytes, count: int, stream: Any = None) -> None:
        self.check(self.memory.fill(self.handle, stream, dst, pattern, len(pattern), count))

    def write(self, address: int, data: np.ndarray, stream: Any = None) -> None:
        data = np.ascontiguousarray(data)
        self.copy(address, data.ctypes.data, data.nbytes, TO_DEVICE, stream)
        self.wait(stream)

    def read(self, address: int, count: int, dtype: Any, stream: Any = None) -> np.ndarray:
        data = np.empty(count, dtype)
        self.copy(data.ctypes.data, address, data.nbytes, TO_HOST, stream)
        self.wait(stream)
        return data

    def place(self, data: np.ndarray) -> int:
        address = self.alloc(data.nbytes)
        self.write(address, data)
        return address

    # ---- Streams and events
    def new_stream(self) -> Any:
        return self._made(self.streams.create, self.handle, 0)

    def wait(self, stream: Any = None) -> None:
        self.check(self.streams.synchronize(self.handle, stream))

    def new_event(self, flags: int = 0) -> Any:
        return self._made(self.streams.event_create, self.handle, flags)

    def record(self, event: Any, stream: Any = None) -> None:
        self.check(self.streams.event_record(self.handle, event, stream))

    def elapsed(self, start: Any, end: Any) -> int:
        return self._made(self.streams.event_elapsed, self.handle, start, end, kind=I64)

    # ---- Compiler
    def compile(self, source: str, defines: Sequence[str] = (), flags: str | None = None) -> Any:
        texts = (C.c_char_p * max(len(defines), 1))(*[d.encode() for d in defines])
        options = CompileOptions(C.sizeof(CompileOptions), len(defines), texts, flags.encode() if flags else None)
        return self._made(self.compiler.compile, self.handle, source.encode(), C.byref(options))

    def save(self, module: Any) -> bytes:
        size = U64()
        self.check(self.compiler.save(module, None, C.byref(size)))
        room = C.create_string_buffer(size.value)
        self.check(self.compiler.save(module, room, C.byref(size)))
        return room.raw

    def load(self, binary: bytes) -> Any:
        return self._made(self.compiler.load, self.handle, binary, len(binary))

    def release(self, module: Any) -> None:
        self.check(self.compiler.release(module))

    def launch(self, module: Any, entry: str, size: int | Sequence[int], *args: Any, local: Sequence[int] = (),
               stream: Any = None, local_bytes: int = 0) -> None:  # fmt: skip
        self.check(self.prepare(module, entry, size, *args, local=local, stream=stream, local_bytes=local_bytes)())

    def prepare(self, module: Any, entry: str, size: int | Sequence[int], *args: Any, local: Sequence[int] = (),
                stream: Any = None, local_bytes: int = 0) -> Any:  # fmt: skip
        """A function that launches. An int argument is an address (its offset is added here); others are values."""
        values: list[Any] = []
        sizes: list[int] = []
        for arg in args:
            if isinstance(arg, int):
                values += [U64(arg), U64(0)]
                sizes += [0, 8]
            else:
                values.append(arg if isinstance(arg, (C.Structure, C._SimpleCData)) else np_value(arg))
                sizes.append(C.sizeof(values[-1]))
        n = len(values)
        pointers = (P * max(n, 1))(*[C.addressof(v) for v in values])
        global_size = (size,) if isinstance(size, int) else tuple(size)
        launch = Launch(C.sizeof(Launch), len(global_size), (U64 * 3)(*global_size), (U64 * 3)(*local), n, local_bytes,
                        pointers, (U32 * max(n, 1))(*sizes))  # fmt: skip
        name, function = entry.encode(), self.compiler.launch
        keep = (values, pointers, launch)
        return lambda keep=keep: function(self.handle, stream, module, name, C.byref(launch))


def np_value(value: Any) -> Any:
    """A numpy scalar as a ctypes value."""
    return np.ctypeslib.as_ctypes_type(value.dtype)(value.item())
