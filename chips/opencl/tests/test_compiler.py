# SPDX-License-Identifier: Apache-2.0
"""Source to modules, modules to bytes and back, and launches."""

from __future__ import annotations

import ctypes as C
import struct
import threading

import numpy as np
import pytest
from opencl_chips import CHIPS
from opencl_host import INVALID_ARGUMENT, OUT_OF_MEMORY, UNIFIED, UNSUPPORTED, Launch, PluginError

AT = "#define AT(type, p, o) ((__global type*)((__global char*)(p) + (o)))\n"
ADD = (
    AT
    + """
__kernel void add(__global const float* a, ulong ao, __global const float* b, ulong bo, __global float* out, ulong oo,
                  float alpha, long n) {
  long i = get_global_id(0);
  if (i < n) AT(float, out, oo)[i] = AT(const float, a, ao)[i] + alpha * AT(const float, b, bo)[i];
}
__kernel void one(__global int* out, ulong o) { AT(int, out, o)[get_global_id(0)] = 1; }
"""
)


class View(C.Structure):
    _fields_ = [("sizes", C.c_int64 * 3), ("strides", C.c_int64 * 3), ("scale", C.c_double)]


def run_add(chip, module, n, **where):
    x, y = np.random.default_rng(n).standard_normal((2, n)).astype(np.float32)
    a, b, out = chip.place(x), chip.place(y), chip.alloc(4 * n)
    chip.launch(module, "add", n, a, b, out, np.float32(0.5), np.int64(n), **where)
    found = chip.read(out, n, np.float32, where.get("stream"))
    chip.free(a, b, out)
    np.testing.assert_allclose(found, x + np.float32(0.5) * y, rtol=1e-6, atol=1e-6)


@pytest.fixture
def add(chip):
    module = chip.compile(ADD)
    yield module
    chip.synchronize()
    chip.release(module)


@pytest.mark.parametrize("n", [1, 2, 7, 64, 1000, 100_000, 100_003])
def test_launch_with_the_chips_local_size(chip, add, n):
    run_add(chip, add, n)


def test_launch_with_a_given_local_size(chip, add):
    run_add(chip, add, 4096, local=(64,))


def test_addresses_inside_allocations(chip, add):
    x = np.arange(300, dtype=np.float32)
    a, b, out = chip.place(x), chip.place(x), chip.alloc(1200)
    chip.fill(out, b"\0", 1200)
    chip.launch(add, "add", 100, a + 4, b + 400, out + 804, np.float32(2), np.int64(99))
    found = chip.read(out, 300, np.float32)
    np.testing.assert_array_equal(found[201:], x[1:100] + 2 * x[100:199])
    assert (found[:201] == 0).all()
    chip.free(a, b, out)


def test_repeated_launches_see_new_arguments(chip, add):
    """Arguments that did not change are not set again: those that did must be."""
    x = np.arange(64, dtype=np.float32)
    inputs = [chip.place(x * k) for k in range(4)]
    out = chip.alloc(4 * 64)
    for a, b, alpha, n in [(0, 1, 1, 64), (0, 1, 1, 64), (0, 2, 1, 64), (3, 2, 1, 64), (3, 2, -1, 64), (3, 2, -1, 5)]:
        chip.fill(out, b"\0", 256)
        chip.launch(add, "add", 64, inputs[a], inputs[b], out, np.float32(alpha), np.int64(n))
        expected = np.where(np.arange(64) < n, x * a + alpha * x * b, 0)
        np.testing.assert_array_equal(chip.read(out, 64, np.float32), expected)
    chip.free(out, *inputs)


def test_an_address_used_again_means_the_new_memory(chip, add):
    x = np.ones(1024, np.float32)
    for k in range(20):
        a, b, out = chip.place(x * k), chip.place(x), chip.alloc(4096)
        chip.launch(add, "add", 1024, a, b, out, np.float32(1), np.int64(1024))
        assert (chip.read(out, 1024, np.float32) == k + 1).all()
        chip.free(a, b, out)


def test_a_struct_of_values(chip):
    source = (
        AT
        + """
    typedef struct { long sizes[3]; long strides[3]; double scale; } View;
    __kernel void gather(__global const double* in, ulong io, __global double* out, ulong oo, View v) {
      long k = get_global_id(0), j = get_global_id(1), i = get_global_id(2);
      AT(double, out, oo)[(i * v.sizes[1] + j) * v.sizes[2] + k] =
          v.scale * AT(const double, in, io)[i * v.strides[0] + j * v.strides[1] + k * v.strides[2]];
    }"""
    )
    module = chip.compile(source)
    data = np.random.default_rng(0).standard_normal((5, 4, 3))
    view = data.transpose(2, 0, 1)
    a, out = chip.place(data), chip.alloc(data.nbytes)
    strides = [s // 8 for s in view.strides]
    chip.launch(module, "gather", (4, 5, 3), a, out, View(view.shape, tuple(strides), 3.0))
    found = chip.read(out, data.size, np.float64).reshape(view.shape)
    np.testing.assert_array_equal(found, 3.0 * view)
    chip.free(a, out)
    chip.release(module)


def test_a_null_address_is_a_null_pointer(chip):
    module = chip.compile(AT + "__kernel void k(__global int* p, ulong po, __global int* out, ulong o) {"
                               " AT(int, out, o)[0] = p == 0 ? 7 : 8; }")  # fmt: skip
    out = chip.alloc(64)
    chip.launch(module, "k", 1, 0, out)
    assert chip.read(out, 1, np.int32)[0] == 7
    chip.launch(module, "k", 1, out, out)
    assert chip.read(out, 1, np.int32)[0] == 8
    chip.launch(module, "k", 1, 0, out)
    assert chip.read(out, 1, np.int32)[0] == 7
    chip.free(out)
    chip.release(module)


def test_dynamic_local_memory_is_the_last_parameter(chip):
    source = (
        AT
        + """
    __kernel void reverse(__global int* data, ulong o, __local int* tile) {
      size_t i = get_local_id(0), n = get_local_size(0);
      tile[i] = AT(int, data, o)[get_global_id(0)];
      barrier(CLK_LOCAL_MEM_FENCE);
      AT(int, data, o)[get_global_id(0)] = tile[n - 1 - i];
    }"""
    )
    module = chip.compile(source)
    a = chip.place(np.arange(128, dtype=np.int32))
    chip.launch(module, "reverse", 128, a, local=(64,), local_bytes=256)
    expected = np.arange(128).reshape(2, 64)[:, ::-1].ravel()
    np.testing.assert_array_equal(chip.read(a, 128, np.int32), expected)
    chip.free(a)
    chip.release(module)


def test_no_work_items_is_no_work(chip, add):
    a = chip.alloc(64)
    chip.launch(add, "one", 0, a)
    chip.free(a)


def test_defines_and_flags(chip):
    source = "__kernel void k(__global float* out, ulong o) { out[o / 4] = (float)(VALUE) * SCALE + FLAG; }"
    module = chip.compile(source, ["VALUE=(1 + 2)", "SCALE=2.5f", "UNUSED"], "-DFLAG=10 -cl-fast-relaxed-math")
    out = chip.alloc(64)
    chip.launch(module, "k", 1, out)
    assert chip.read(out, 1, np.float32)[0] == 17.5
    chip.free(out)
    chip.release(module)


def test_source_that_does_not_compile(chip):
    source = "__kernel void k(__global float* out) {\n  out[0] = no_such_name;\n}\n"
    with pytest.raises(PluginError, match="no_such_name") as error:
        chip.compile(source, ["A=1", "B=2"])
    assert error.value.status == INVALID_ARGUMENT
    assert "clBuildProgram failed on" in error.value.message
    assert "CL_BUILD_PROGRAM_FAILURE (-11)" in error.value.message
    assert ":2:" in error.value.message  # the line of the source, whatever was defined


def test_flags_that_the_compiler_does_not_know(chip):
    with pytest.raises(PluginError) as error:
        chip.compile("__kernel void k() {}", flags="-no-such-flag")
    assert error.value.status == INVALID_ARGUMENT


def test_mistakes_in_a_launch(chip, add):
    a = chip.alloc(64)
    with pytest.raises(PluginError, match="no kernel two; it has:") as error:
        chip.launch(add, "two", 1, a)
    assert error.value.status == INVALID_ARGUMENT
    with pytest.raises(PluginError, match="the kernel one has 2 parameters, but 3 arguments came"):
        chip.launch(add, "one", 1, a, np.int64(1))
    with pytest.raises(PluginError, match="work_dim is 4"):
        chip.check(launch_in_four_dimensions(chip, add, a))
    with pytest.raises(PluginError, match="CL_INVALID_WORK_GROUP_SIZE"):
        chip.launch(add, "one", 10, a, local=(3,))
    with pytest.raises(PluginError, match="kernel add, argument 6"):
        chip.launch(add, "add", 1, a, a, a, np.float64(1), np.int64(1))
    chip.launch(add, "one", 1, a)
    assert chip.read(a, 1, np.int32)[0] == 1
    chip.free(a)


def launch_in_four_dimensions(chip, module, a):
    launch = Launch(C.sizeof(Launch), 4)
    value, offset = C.c_uint64(a), C.c_uint64(0)
    launch.n_args = 2
    launch.args = (C.c_void_p * 2)(C.addressof(value), C.addressof(offset))
    launch.arg_sizes = (C.c_uint32 * 2)(0, 8)
    return chip.compiler.launch(chip.handle, None, module, b"one", C.byref(launch))


def test_identity_tells_device_driver_and_language(chip):
    text = C.create_string_buffer(4096)
    chip.check(chip.compiler.identity(chip.handle, text, 4096))
    said = text.value.decode()
    assert chip.properties.driver_version.decode() in said
    assert "language OpenCL C" in said
    with pytest.raises(PluginError, match="larger buffer"):
        chip.check(chip.compiler.identity(chip.handle, text, 10))


def test_save_and_load(chip, add):
    binary = chip.save(add)
    run_add(chip, add, 100)
    module = chip.load(binary)
    run_add(chip, module, 1000)
    again = chip.save(module)
    third = chip.load(again)
    run_add(chip, third, 77)
    chip.release(module)
    chip.release(third)


def test_the_size_of_a_binary_stays_what_was_told(chip, add):
    """A runtime may compile more of the program between the two calls."""
    size = C.c_uint64()
    chip.check(chip.compiler.save(add, None, C.byref(size)))
    run_add(chip, add, 4096, local=(32,))
    room = C.create_string_buffer(size.value)
    told = C.c_uint64(size.value)
    chip.check(chip.compiler.save(add, room, C.byref(told)))
    assert told.value == size.value
    chip.release(chip.load(room.raw))
    with pytest.raises(PluginError, match="smaller than the binary"):
        chip.check(chip.compiler.save(add, room, C.byref(C.c_uint64(10))))


def test_bytes_that_are_no_binary_of_this_device(chip, add):
    binary = chip.save(add)
    middle = len(binary) // 2
    flipped = binary[:middle] + bytes([binary[middle] ^ 1]) + binary[middle + 1 :]
    foreign = binary[:8] + bytes(8) + binary[16:]
    for broken, why in [
        (flipped, "damaged"), (binary[:-1], "length"), (binary[:20], "too short"), (b"", "too short"),
        (b"\x7fELF" + bytes(5000), "no binary of this plugin"), (foreign, "another device or driver"),
    ]:  # fmt: skip
        with pytest.raises(PluginError, match=why) as error:
            chip.load(broken)
        assert error.value.status == UNSUPPORTED


def fnv(data: bytes) -> int:
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 % 2**64
    return h


def test_a_sound_header_before_what_the_driver_does_not_know(chip, add):
    """As after a driver changed without a new version: the host shall compile again."""
    garbage = b"garbage" * 100
    with pytest.raises(PluginError, match="refuses its own binary") as error:
        chip.load(chip.save(add)[:16] + struct.pack("<QQ", len(garbage), fnv(garbage)) + garbage)
    assert error.value.status == UNSUPPORTED


def test_a_binary_of_the_other_runtime_is_refused(plugins):
    chips = [c for c in CHIPS.values() if c.plugin is plugins["buffer"]]
    for one in chips:
        module = one.compile(ADD)
        binary = one.save(module)
        one.release(module)
        for other in chips:
            if other is not one:
                with pytest.raises(PluginError, match="another device or driver"):
                    other.load(binary)


def test_eight_threads_launch_one_kernel(chip, add):
    """Arguments belong to the kernel object: no thread may see another's."""
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            stream = chip.new_stream()
            x = np.full(256, seed, np.float32)
            a, b, out = (chip.place(v) for v in (x, x * 2, x * 0))
            other = chip.alloc(1024)
            go = chip.prepare(add, "add", 256, a, b, out, np.float32(seed + 1), np.int64(256), stream=stream)
            other_go = chip.prepare(add, "one", 256, other, stream=stream)
            expected = x[0] + (seed + 1) * 2 * x[0]
            for i in range(200):
                assert go() == 0
                if i % 10 == 0:
                    assert other_go() == 0
                    chip.free(chip.alloc(64))
                if i % 20 == 0:
                    found = chip.read(out, 256, np.float32, stream)
                    assert (found == expected).all(), (seed, i, found)
                    chip.fill(out, b"\0", 1024, stream)
            assert (chip.read(other, 256, np.int32, stream) == 1).all()
            chip.free(a, b, out, other)
            chip.check(chip.streams.destroy(chip.handle, stream))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_eight_threads_compile(chip):
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            module = chip.compile(ADD + f"// {seed}\n")
            stream = chip.new_stream()
            a = chip.alloc(64)
            chip.launch(module, "one", 8, a, stream=stream)
            assert (chip.read(a, 8, np.int32, stream) == 1).all()
            chip.free(a)
            chip.check(chip.streams.destroy(chip.handle, stream))
            chip.release(module)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors


def test_too_much_memory_does_not_break_later_launches(chip, add):
    with pytest.raises(PluginError) as error:
        chip.alloc(1 << 45)
    assert error.value.status == OUT_OF_MEMORY
    run_add(chip, add, 10)


def test_kernels_take_ordinary_memory_where_it_is_promised(chip, add):
    if not chip.properties.capabilities & UNIFIED:
        return
    x, out = np.arange(1000, dtype=np.float32), np.zeros(1000, np.float32)
    chip.launch(add, "add", 1000, x.ctypes.data, x.ctypes.data, out.ctypes.data, np.float32(1), np.int64(1000))
    chip.wait()
    np.testing.assert_array_equal(out, 2 * x)
