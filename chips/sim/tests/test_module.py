# SPDX-License-Identifier: Apache-2.0
"""The compiler table: C source to kernels on streams. Each case that needs settings is a process of its own."""

from __future__ import annotations

import ctypes as C
import itertools
import os
import pathlib
import shutil
import threading

import harness
import pytest
import test_sdk
from module_host import Address, CompilerChip

pytestmark = pytest.mark.skipif(not any(map(shutil.which, ("cc", "gcc", "clang"))), reason="no C compiler")
SAXPY = """
#include <stdint.h>
struct Shape { int64_t rows, columns; };
void saxpy(void* const* args, const uint64_t* begin, const uint64_t* end) {
  const float* x = *(const float* const*)args[0];
  const float* y = *(const float* const*)args[1];
  float* out = *(float* const*)args[2];
  const float scale = *(const float*)args[3];
  const struct Shape shape = *(const struct Shape*)args[4];
  for (uint64_t k = begin[2]; k < end[2]; ++k)
    for (uint64_t j = begin[1]; j < end[1]; ++j)
      for (uint64_t i = begin[0]; i < end[0]; ++i) {
        const uint64_t at = (k * shape.rows + j) * shape.columns + i;
        out[at] = scale * x[at] + y[at];
      }
}
"""
# Counts how often each item runs; items of different boxes are different memory.
COVER = """
#include <stdint.h>
void cover(void* const* args, const uint64_t* begin, const uint64_t* end) {
  uint32_t* seen = *(uint32_t* const*)args[0];
  const uint64_t* size = (const uint64_t*)args[1];
  const int64_t spin = *(const int64_t*)args[2];
  for (uint64_t k = begin[2]; k < end[2]; ++k)
    for (uint64_t j = begin[1]; j < end[1]; ++j)
      for (uint64_t i = begin[0]; i < end[0]; ++i) {
        for (volatile int64_t s = 0; s < spin; ++s) {}
        ++seen[(k * size[1] + j) * size[0] + i];
      }
}
"""
ADD = """
#include <stdint.h>
#ifndef STEP
#define STEP 1
#endif
void add(void* const* args, const uint64_t* begin, const uint64_t* end) {
  int32_t* data = *(int32_t* const*)args[0];
  for (uint64_t i = begin[0]; i < end[0]; ++i) data[i] += STEP;
}
"""


class Shape(C.Structure):
    _fields_ = [("rows", C.c_int64), ("columns", C.c_int64)]


@pytest.fixture(scope="module")
def chip() -> CompilerChip:
    return CompilerChip()


@pytest.fixture(scope="module")
def library() -> str:
    return harness.library_path()


def fails(action, status: int) -> str:
    with pytest.raises(harness.PluginError) as error:
        action()
    assert error.value.status == status, str(error.value)
    return str(error.value)


def in_process(library: str, code: str, **environment: str) -> None:
    prelude = "from test_module import *\nfrom test_module import fails\nchip = CompilerChip()\n"
    test_sdk.passes(library, prelude + code, **environment)


def test_the_table(chip: CompilerChip) -> None:
    assert chip.compiler.contents.dialect == b"c99"
    identity = chip.identity()
    assert identity.startswith("simchip ")
    assert identity == chip.identity()
    assert "\n" not in identity
    assert "are needed" in fails(lambda: chip.identity(8), 3)


@pytest.mark.parametrize("size", [(24,), (6, 4), (3, 4, 2), (1, 24), (1, 1, 24), (1,), (4, 6, 1)], ids=str)
def test_ranges(chip: CompilerChip, size: tuple[int, ...]) -> None:
    module = chip.compile(SAXPY)
    x, y, out = (chip.write(C.c_float, values) for values in (range(24), [0.5] * 24, [0] * 24))
    shape = Shape(size[1] if len(size) > 1 else 1, size[0])
    args = [Address(x), Address(y), Address(out), C.c_float(2), shape]
    chip.launch(module, "saxpy", size, args)
    count = shape.columns * shape.rows * (size[2] if len(size) > 2 else 1)
    assert chip.read(out, C.c_float, 24) == [2 * i + 0.5 if i < count else 0 for i in range(24)]
    chip.release(module)


COVERED = """
module = chip.compile(COVER)
for size, spin in itertools.product([(7,), (1, 5), (3, 11), (2, 3, 5), (64, 1, 1), (5, 4, 3)], [0, 40000]):
    three = [*size, 1, 1][:3]
    count = three[0] * three[1] * three[2]
    seen = chip.write(C.c_uint32, [0] * count)
    for _ in range(3):  # from the second on, the chip knows how long an item takes
        chip.launch(module, "cover", size, [Address(seen), (C.c_uint64 * 3)(*three), C.c_int64(spin)])
    assert chip.read(seen, C.c_uint32, count) == [3] * count, (size, spin)
    chip.free(seen)
"""


@pytest.mark.parametrize("threads", ["1", "2", "5"])
@pytest.mark.parametrize("inline", ["0", "1"])
def test_boxes_cover_the_range_once(library: str, inline: str, threads: str) -> None:
    in_process(library, COVERED, SIMCHIP_INLINE=inline, SIMCHIP_THREADS=threads)


def test_large_work_is_shared(library: str) -> None:
    code = """
source = '''
#define _GNU_SOURCE
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>
void who(void* const* args, const uint64_t* begin, const uint64_t* end) {
  int64_t* ids = *(int64_t* const*)args[0];
  for (uint64_t i = begin[0]; i < end[0]; ++i) {
    for (volatile int s = 0; s < 3000000; ++s) {}
    ids[i] = syscall(SYS_gettid);
  }
}
'''
module, ids = chip.compile(source), chip.write(C.c_int64, [0] * 12)
for expected in (1, 3):
    chip.launch(module, "who", (12,), [Address(ids)])
    assert len(set(chip.read(ids, C.c_int64, 12))) == expected
"""
    in_process(library, code, SIMCHIP_THREADS="3")


def test_source_with_an_error(chip: CompilerChip) -> None:
    text = fails(lambda: chip.compile("int f(void) { return nothing; }"), 3)
    assert "nothing" in text
    assert "<stdin>:1" in text
    assert "absent_function" in fails(
        lambda: chip.compile("void absent_function(void); void f(void) { absent_function(); }"), 3
    )
    many = "\n".join(f"int f{i}(void) {{ return unknown{i}; }}" for i in range(500))
    text = fails(lambda: chip.compile(many), 3)
    assert "unknown0" in text
    assert 1000 < len(text) <= 4096


def test_options(chip: CompilerChip) -> None:
    data = chip.write(C.c_int32, [0] * 16)
    for defines, flags, step in [
        ((), None, 1),
        (["STEP=5"], None, 5),
        ((), "-DUNUSED  -DSTEP=7", 7),
        (["STEP=(1 + 2)"], "", 3),
    ]:
        module = chip.compile(ADD, defines, flags)
        before = chip.read(data, C.c_int32, 1)[0]
        chip.launch(module, "add", (16,), [Address(data)])
        assert chip.read(data, C.c_int32, 16) == [before + step] * 16
        chip.release(module)
    # One argument, whatever is in it: no shell reads it.
    fails(lambda: chip.compile(ADD, ["STEP=1; touch /nowhere/x; $(false)"]), 3)


def test_launches_that_are_refused(chip: CompilerChip) -> None:
    module, data = chip.compile(ADD), chip.write(C.c_int32, [0] * 16)
    args = [Address(data)]
    assert '"minus"' in fails(lambda: chip.launch(module, "minus", (16,), args), 3)
    fails(lambda: chip.launch(module, "", (16,), args), 3)
    # The names of a library that the module needs are no entries.
    needs = chip.compile("#include <stdlib.h>\nint f(const char* text) { return atoi(text); }")
    fails(lambda: chip.launch(needs, "atoi", (0,), []), 3)
    fails(lambda: chip.launch(needs, "malloc", (0,), []), 3)
    chip.launch(needs, "f", (0,), [])
    assert "local_size is 8" in fails(lambda: chip.launch(module, "add", (16,), args, local=8), 3)
    assert "local_bytes" in fails(lambda: chip.launch(module, "add", (16,), args, local_bytes=8), 3)
    assert "work_dim" in fails(lambda: chip.launch(module, "add", (), args), 3)
    assert "arguments" in fails(lambda: chip.launch(module, "add", (1,), [C.c_int64(0)] * 257), 3)
    assert "argument 0" in fails(lambda: chip.launch(module, "add", (1,), [(C.c_char * 5000)()]), 3)
    chip.launch(module, "add", (0,), args)
    chip.launch(module, "add", (16,), args, local=1)
    assert chip.read(data, C.c_int32, 16) == [1] * 16


def test_many_arguments(chip: CompilerChip) -> None:
    source = """
    #include <stdint.h>
    void sum(void* const* args, const uint64_t* begin, const uint64_t* end) {
      int64_t total = 0;
      for (int i = 1; i < 256; ++i) total += *(const int64_t*)args[i];
      **(int64_t* const*)args[0] = total;
    }
    """
    module, out = chip.compile(source), chip.write(C.c_int64, [0])
    chip.launch(module, "sum", (1,), [Address(out), *[C.c_int64(i) for i in range(1, 256)]])
    assert chip.read(out, C.c_int64, 1) == [255 * 128]


def test_save_and_load(chip: CompilerChip) -> None:
    data = chip.write(C.c_int32, [0] * 16)
    first, second = chip.compile(ADD, ["STEP=2"]), chip.compile(ADD, ["STEP=30"])
    binaries = [chip.save(first), chip.save(second)]
    chip.release(first)
    loaded = [chip.load(b) for b in binaries * 2]
    assert chip.save(loaded[0]) == binaries[0]
    for module in loaded:
        chip.launch(module, "add", (16,), [Address(data)])
    assert chip.read(data, C.c_int32, 16) == [64] * 16
    small = C.c_uint64(10)
    call = chip.call("save", C.c_void_p, C.c_void_p, C.POINTER(C.c_uint64))
    fails(lambda: chip.check(call(second, (C.c_char * 10)(), C.byref(small))), 3)
    for module in [second, *loaded]:
        chip.release(module)


def fnv(data: bytes, seed: int) -> int:
    for byte in data:
        seed = ((seed ^ byte) * 0x100000001B3) & (2**64 - 1)
    return seed


def with_checksum(binary: bytes) -> bytes:
    """The same with the head's checksum made to fit: magic, bytes, checksum, CPU, identity; 512 bytes."""
    size = int.from_bytes(binary[8:16], "little")
    return binary[:16] + fnv(binary[512:], fnv(binary[24:512], size)).to_bytes(8, "little") + binary[24:]


def test_binaries_that_are_refused(chip: CompilerChip) -> None:
    module = chip.compile(ADD)
    good = chip.save(module)
    assert with_checksum(good) == good
    for at in (600, len(good) // 2, len(good) - 1):
        assert "damaged" in fails(lambda i=at: chip.load(good[:i] + bytes([good[i] ^ 1]) + good[i + 1 :]), 1)
    assert "damaged" in fails(lambda: chip.load(good[:-1]), 1)
    assert "damaged" in fails(lambda: chip.load(good + b"\0"), 1)
    assert "damaged" in fails(lambda: chip.load(good[:30] + b"\1" + good[31:]), 1)
    for short in (b"", good[:100]):
        assert "no module" in fails(lambda b=short: chip.load(b), 1)
    assert "version" in fails(lambda: chip.load(b"X" + good[1:]), 1)
    foreign = with_checksum(good[:24] + bytes(8) + good[32:])
    assert "another CPU" in fails(lambda: chip.load(foreign), 1)
    nonsense = with_checksum(good[:512] + bytes(len(good) - 512))
    assert "cannot be loaded" in fails(lambda: chip.load(nonsense), 1)
    chip.release(module)


def test_no_compiler(library: str, chip: CompilerChip, tmp_path: pathlib.Path) -> None:
    code = """
for action in (lambda: chip.compile(ADD), chip.identity):
    text = fails(action, 1)
    assert all(part in text for part in {parts}), text
"""
    in_process(library, code.format(parts=["cc", "gcc", "clang"]), PATH=str(tmp_path), CC="")
    in_process(library, code.format(parts=["/no/such (CC)"]), CC="/no/such -m64")
    in_process(library, code.format(parts=["nix (SIMCHIP_CC)"]), SIMCHIP_CC="nix")
    # What was saved needs none.
    module = chip.compile(ADD)
    (tmp_path / "binary").write_bytes(chip.save(module))
    chip.release(module)
    code = f"""
module, data = chip.load(pathlib.Path({str(tmp_path / "binary")!r}).read_bytes()), chip.write(C.c_int32, [0] * 16)
chip.launch(module, "add", (16,), [Address(data)])
assert chip.read(data, C.c_int32, 16) == [1] * 16
"""
    in_process(library, code, SIMCHIP_CC="nix")


def test_a_compiler_of_choice(library: str, tmp_path: pathlib.Path) -> None:
    compiler = tmp_path / "mycc"
    compiler.write_text('#!/bin/sh\n[ "$2" = --version ] && echo "my compiler 7" && exit\necho "said $1"; exit 1\n')
    compiler.chmod(0o755)
    code = 'assert "; my compiler 7; " in chip.identity(); assert fails(lambda: chip.compile(ADD), 3) == "said --first"'
    in_process(library, code, SIMCHIP_CC=f"{compiler} --first")
    in_process(library, code, CC="mycc --first", PATH=f"{tmp_path}:{os.environ['PATH']}")
    compiler.write_text('#!/bin/sh\n[ "$2" = --version ] && exit\nkill -9 $$\n')
    in_process(library, 'assert "signal 9" in fails(lambda: chip.compile(ADD), 5)', SIMCHIP_CC=f"{compiler} x")


def test_temporary_files(library: str, tmp_path: pathlib.Path) -> None:
    code = """
module = chip.load(chip.save(chip.compile(ADD)))
fails(lambda: chip.compile("nonsense"), 3)
"""
    in_process(library, code, TMPDIR=str(tmp_path))
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("simchip-")]
    missing = f'assert "{tmp_path}/missing" in fails(lambda: chip.compile(ADD), 5)'
    in_process(library, f"os.environ['TMPDIR'] = '{tmp_path}/missing'\n" + missing)


def test_a_parent_that_ignores_its_children(library: str) -> None:
    code = """
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
chip.release(chip.compile(ADD))
assert "nothing" in fails(lambda: chip.compile("int f(void) { return nothing; }"), 3)
"""
    in_process(library, code)


def test_many_threads(chip: CompilerChip) -> None:
    shared = chip.compile(ADD, ["STEP=1"])
    problems: list[str] = []

    def work(k: int) -> None:
        try:
            data = chip.write(C.c_int32, [0] * 64)
            stream = C.c_void_p()
            chip.check(
                chip.stream_call("create", C.c_void_p, C.c_int32, C.POINTER(C.c_void_p))(
                    chip.device, 0, C.byref(stream)
                )
            )
            for _ in range(2):
                mine = chip.compile(ADD, [f"STEP={1000 * k}"])
                copy = chip.load(chip.save(mine))
                for module, _ in itertools.product((mine, shared, copy), range(20)):
                    chip.launch(module, "add", (64,), [Address(data)], stream)
                found = chip.read(data, C.c_int32, 64, stream)
                chip.release(mine)
                chip.release(copy)
            assert found == [2 * (40 * 1000 * k + 20)] * 64, found[:4]
        except BaseException as error:
            problems.append(repr(error))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    chip.release(shared)


@pytest.mark.parametrize("inline", ["0", "1"])
def test_injected_failure(library: str, inline: str) -> None:
    code = """
module, data = chip.compile(ADD), chip.write(C.c_int32, [0] * 16)
def once():
    chip.launch(module, "add", (16,), [Address(data)])
    chip.synchronize()
once()
text = fails(once, 5)
assert "module:add" in text, text
once()
assert chip.read(data, C.c_int32, 16) == [2] * 16
"""
    in_process(library, code, SIMCHIP_FAIL_KERNEL="module:add:2", SIMCHIP_INLINE=inline)


@pytest.mark.parametrize("inline", ["0", "1"])
def test_lost_device(library: str, inline: str) -> None:
    code = """
module, data = chip.compile(ADD), chip.write(C.c_int32, [0] * 16)
def once():
    chip.launch(module, "add", (16,), [Address(data)])
    chip.synchronize()
once()
for _ in range(2):
    assert "device 0" in fails(once, 4)
fails(lambda: chip.compile(ADD), 4)
chip.device = open_device(1)  # a module is every device's
data = chip.write(C.c_int32, [0] * 16)
once()
assert chip.read(data, C.c_int32, 16) == [1] * 16
"""
    in_process(library, code, SIMCHIP_LOSE_DEVICE="0:2", SIMCHIP_INLINE=inline)


def test_order(library: str) -> None:
    code = """
module, data, size = chip.compile(ADD, ["STEP=3"]), chip.alloc(64), 64
host = (C.c_int32 * 16)()
one, two, event = new_stream(), new_stream(), new_event()
fill(one, data, 0, size)
value = C.c_int32(1)
chip.launch(module, "add", (16,), [Address(data)], one)
copy_async(one, C.addressof(host), data, size, 1)
chip.launch(module, "add", (16,), [Address(data)], one)
chip.check(stream_op("event_record", event, one))
chip.check(stream_op("event_wait", event, two))
chip.launch(module, "add", (16,), [Address(data)], two)
assert stream_op("query", two) == 6
assert chip.read(data, C.c_int32, 16, two) == [9] * 16
assert list(host) == [3] * 16
chip.release(module)
"""
    in_process(library, code, SIMCHIP_SLOW_STREAM_US="5000")


def test_arguments_are_read_during_the_call(library: str) -> None:
    code = """
source = '''
#include <stdint.h>
void put(void* const* args, const uint64_t* begin, const uint64_t* end) { **(int64_t* const*)args[0] = *(int64_t*)args[1]; }
'''
module, out, value = chip.compile(source), chip.alloc(64), C.c_int64(5)
chip.launch(module, "put", (1,), [Address(out), value])
value.value = 6
assert chip.read(out, C.c_int64, 1) == [5]
"""
    in_process(library, code, SIMCHIP_SLOW_STREAM_US="20000")


@pytest.mark.parametrize("inline", ["0", "1"])
def test_checked_mode(library: str, inline: str) -> None:
    code = """
module, data = chip.compile(ADD), chip.write(C.c_int32, [0] * 16)
chip.launch(module, "add", (0,), [Address(data)]); chip.launch(module, "add", (4,), [Address(data + 48)]); chip.synchronize()
print("so far", flush=True)
chip.launch(module, "add", (16,), [Address(data + {past})]); chip.synchronize(); chip.free(data)
"""
    prelude = "from test_module import *\nchip = CompilerChip()\n"
    for past, message in [(1 << 20, "module:add"), (64, "module:add"), (4, "past the end of the allocation")]:
        result = test_sdk.run(library, prelude + code.format(past=past), SIMCHIP_CHECK="1", SIMCHIP_INLINE=inline)
        assert result.returncode == -6, result.stderr
        assert result.stdout == "so far\n"
        assert message in result.stderr


def test_fork(library: str) -> None:
    code = """
module = chip.compile(ADD)
child = os.fork()
if child == 0:
    assert "forked" in fails(lambda: chip.compile(ADD), 5)
    assert "forked" in fails(lambda: chip.launch(module, "add", (0,), []), 5)
    os._exit(17)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
"""
    in_process(library, code)


@pytest.mark.parametrize(
    ("setting", "kernels", "compiler"),
    [({}, True, True), ({"SIMCHIP_HIDE_KERNELS": "1"}, False, False), ({"SIMCHIP_HIDE_KERNELS": "2"}, False, True),
     ({"SIMCHIP_HIDE_COMPILER": "1"}, True, False), ({"SIMCHIP_HIDE_KERNELS": "2", "SIMCHIP_HIDE_COMPILER": "1"}, False, False)],
    ids=str,
)  # fmt: skip
def test_hidden_parts(library: str, setting: dict[str, str], kernels: bool, compiler: bool) -> None:
    in_process(library, f"assert (bool(chip.kernels), bool(chip.compiler)) == ({kernels}, {compiler})", **setting)
