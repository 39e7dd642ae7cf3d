# SPDX-License-Identifier: Apache-2.0
"""One device of a Python chip, as the core calls it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch_fl import _load
from torch_fl._suggest import did_you_mean
from torch_fl.chips.python_backend.memory import MemoryAllocator
from torch_fl.chips.python_backend.tensors import Row, TensorView

MESSAGE = 300  # characters of either end of a long message
PROPERTIES: dict[str, type] = {
    "name": str,
    "driver_version": str,
    "compute_units": int,
    "clock_mhz": int,
    "peak_flops": float,
    "peak_bandwidth": float,
}


class Call:
    """One call of dispatch() or supports(), and the views that end with it."""

    __slots__ = ("adapter", "describes", "given", "inputs", "op", "open", "outs", "params")

    def __init__(
        self, adapter: Adapter, op: str, tensors: list[Row], params: dict[str, Any], outs: list[Row | None]
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


class Adapter:
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
        call = Call(self, op, tensors, params, outs)
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
        call = Call(self, op, tensors, params, outs)
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
