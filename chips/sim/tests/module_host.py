# SPDX-License-Identifier: Apache-2.0
"""The host's side of the compiler table: compile, save, load, launch, as methods of a `Chip`."""

from __future__ import annotations

import ctypes as C
from collections.abc import Sequence
from typing import Any

import harness


class CompilerApi(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("reserved", C.c_uint32), ("dialect", C.c_char_p), ("identity", C.c_void_p),
        ("compile", C.c_void_p), ("save", C.c_void_p), ("load", C.c_void_p), ("release", C.c_void_p),
        ("launch", C.c_void_p),
    ]  # fmt: skip


class FlPlugin(C.Structure):
    _fields_ = [*harness.FlPlugin._fields_, ("compiler", C.POINTER(CompilerApi))]


class FlCompileOptions(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("n_defines", C.c_uint32), ("defines", C.POINTER(C.c_char_p)),
        ("flags", C.c_char_p),
    ]  # fmt: skip


class FlLaunch(C.Structure):
    _fields_ = [
        ("struct_size", C.c_uint32), ("work_dim", C.c_uint32), ("global_size", C.c_uint64 * 3),
        ("local_size", C.c_uint64 * 3), ("n_args", C.c_uint32), ("local_bytes", C.c_uint32),
        ("args", C.POINTER(C.c_void_p)), ("arg_sizes", C.POINTER(C.c_uint32)),
    ]  # fmt: skip


class Address(int):
    """An address argument of a launch; every other argument is a ctypes value."""


class CompilerChip(harness.Chip):
    def __init__(self) -> None:
        super().__init__()
        plugin = C.cast(C.pointer(self.plugin), C.POINTER(FlPlugin)).contents
        self.compiler = plugin.compiler

    def call(self, name: str, *types: Any) -> Any:
        return self._call(self.compiler, name, *types)

    def identity(self, capacity: int = 1024) -> str:
        text = C.create_string_buffer(capacity)
        self.check(self.call("identity", C.c_void_p, C.c_char_p, C.c_uint64)(self.device, text, capacity))
        return text.value.decode()

    def compile(self, source: str, defines: Sequence[str] = (), flags: str | None = None) -> C.c_void_p:
        texts = (C.c_char_p * max(len(defines), 1))(*[d.encode() for d in defines])
        options = FlCompileOptions(
            C.sizeof(FlCompileOptions), len(defines), texts, None if flags is None else flags.encode()
        )
        module = C.c_void_p()
        call = self.call("compile", C.c_void_p, C.c_char_p, C.POINTER(FlCompileOptions), C.POINTER(C.c_void_p))
        self.check(call(self.device, source.encode(), C.byref(options), C.byref(module)))
        return module

    def save(self, module: C.c_void_p) -> bytes:
        size = C.c_uint64()
        call = self.call("save", C.c_void_p, C.c_void_p, C.POINTER(C.c_uint64))
        self.check(call(module, None, C.byref(size)))
        binary = (C.c_char * size.value)()
        self.check(call(module, binary, C.byref(size)))
        return bytes(binary)

    def load(self, binary: bytes) -> C.c_void_p:
        module = C.c_void_p()
        call = self.call("load", C.c_void_p, C.c_char_p, C.c_uint64, C.POINTER(C.c_void_p))
        self.check(call(self.device, binary, len(binary), C.byref(module)))
        return module

    def release(self, module: C.c_void_p) -> None:
        self.check(self.call("release", C.c_void_p)(module))

    def prepared(self, size: Sequence[int], args: Sequence[Any], local: int = 0, local_bytes: int = 0) -> FlLaunch:
        """An fl_launch that keeps its arguments alive."""
        values = [C.c_uint64(a) if isinstance(a, Address) else a for a in args]
        pointers = (C.c_void_p * max(len(args), 1))(*[C.addressof(v) for v in values])
        sizes = (C.c_uint32 * max(len(args), 1))(*[0 if isinstance(a, Address) else C.sizeof(a) for a in args])
        three = [*size, *([1] * (3 - len(size)))]
        launch = FlLaunch(
            C.sizeof(FlLaunch), len(size), (C.c_uint64 * 3)(*three), (C.c_uint64 * 3)(local, 0, 0), len(args),
            local_bytes, pointers, sizes,
        )  # fmt: skip
        launch.keep = (values, pointers, sizes)
        return launch

    def launch(
        self, module: C.c_void_p, entry: str, size: Sequence[int], args: Sequence[Any], stream: Any = None, **more: int
    ) -> None:
        call = self.call("launch", C.c_void_p, C.c_void_p, C.c_void_p, C.c_char_p, C.POINTER(FlLaunch))
        self.check(call(self.device, stream, module, entry.encode(), C.byref(self.prepared(size, args, **more))))

    def read(self, address: int, ctype: Any, count: int, stream: Any = None) -> list[Any]:
        array = (ctype * count)()
        call = self.memory_call("copy", C.c_void_p, C.c_void_p, C.c_uint64, C.c_uint64, C.c_uint64, C.c_int32)
        self.check(call(self.device, stream, C.addressof(array), address, C.sizeof(array), 1))
        self.synchronize()
        return list(array)

    def write(self, ctype: Any, values: Sequence[Any]) -> int:
        array = (ctype * len(values))(*values)
        address = self.alloc(C.sizeof(array))
        self.copy(address, C.addressof(array), C.sizeof(array), 0)
        return address
