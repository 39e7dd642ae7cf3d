# SPDX-License-Identifier: Apache-2.0
"""Which devices there are, in which order, what they say of themselves, and what happens without any."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import opencl_host
import pytest
from opencl_host import HOST_COHERENT, PEER_COPY, TIMED_EVENTS, UNSUPPORTED, Chip, Plugin, PluginError

FLOAT64, COMPLEX128, FLOAT16, BFLOAT16, INT64 = 7, 10, 5, 12, 4


def test_the_plugin_introduces_itself(plugins):
    tables = plugins["buffer"].tables
    assert (tables.name, tables.vendor, tables.abi_major) == (b"opencl", b"Khronos OpenCL", 1)
    assert tables.n_kernels == 0
    assert tables.compiler.contents.dialect == b"opencl-c"


def test_properties_are_sound(chip):
    p = chip.properties
    assert p.name.decode().endswith(")")
    assert " (" in p.name.decode()
    assert p.driver_version
    assert 0 < p.max_allocation <= max(p.total_memory, p.max_allocation)
    assert p.alignment >= 64
    assert p.alignment & (p.alignment - 1) == 0
    assert p.size_granularity == 1
    assert p.compute_units > 0
    for dtype in (FLOAT16, BFLOAT16, INT64):
        assert p.dtypes >> dtype & 1
    assert p.dtypes >> FLOAT64 & 1 == p.dtypes >> COMPLEX128 & 1
    assert p.capabilities & TIMED_EVENTS


def test_what_a_cpu_shares_is_coherent(chip, kind):
    wanted = HOST_COHERENT | PEER_COPY if kind in ("svm", "usm") else 0
    assert chip.properties.capabilities & (HOST_COHERENT | PEER_COPY) == wanted


def test_devices_are_ordered_by_their_platforms_names(plugins):
    plugin = plugins["buffer"]
    platforms = [plugin.properties(i).name.decode().rsplit(" (", 1)[1] for i in range(plugin.count)]
    assert platforms == sorted(platforms)


def test_devices_are_chosen_by_pieces_of_their_names(plugins):
    everything = plugins["buffer"]
    names = [everything.properties(i).name.decode() for i in range(everything.count)]
    for name in names:
        device, platform = re.fullmatch(r"(.+?) \((.+)\)", name).groups()
        for wish in (platform.upper(), f" nothing ,{platform}/{device}", device[-12:]):
            chosen = Plugin(TORCH_FL_OPENCL_DEVICES=wish)
            found = [chosen.properties(i).name.decode() for i in range(chosen.count)]
            assert found == [n for n in names if wish.split(",")[-1].split("/")[0].lower() in n.lower()]


def test_a_choice_that_names_no_device_says_what_there_is(plugins):
    with pytest.raises(PluginError, match=r"TORCH_FL_OPENCL_DEVICES=teapot names none of the devices: .+/.+") as error:
        Plugin(TORCH_FL_OPENCL_DEVICES="teapot")
    assert error.value.status == UNSUPPORTED


def test_unknown_kind_of_memory_is_refused_when_opened(plugins):
    plugin = Plugin(TORCH_FL_OPENCL_MEMORY="paper")
    with pytest.raises(PluginError, match='is "paper": expected svm, '):
        Chip(plugin, 0)


def test_a_device_without_the_wanted_memory_leaves_others_working(plugins):
    plugin = Plugin(TORCH_FL_OPENCL_MEMORY="usm")
    for i in range(plugin.count):
        name = plugin.properties(i).name.decode()
        if "Portable" in name:
            with pytest.raises(PluginError, match=f"TORCH_FL_OPENCL_MEMORY=usm, but {re.escape(name[:20])}") as error:
                Chip(plugin, i)
            assert error.value.status == UNSUPPORTED
        elif "Intel(R) OpenCL" in name:
            chip = Chip(plugin, i)
            chip.free(chip.alloc(64))
            chip.close()


def test_an_index_out_of_range_is_an_error(plugins):
    with pytest.raises(PluginError, match="there is no OpenCL device 99"):
        plugins["buffer"].properties(99)


def test_default_memory_of_a_cpu_is_coherent(plugins):
    plugin = Plugin()
    for i in range(plugin.count):
        assert plugin.properties(i).capabilities & HOST_COHERENT


def in_subprocess(**settings: str) -> str:
    """What a fresh process says when it loads the plugin."""
    code = (
        "import opencl_host\n"
        "try: print('found', opencl_host.Plugin().count)\n"
        "except opencl_host.PluginError as error: print(error)\n"
    )
    environment = {**os.environ, **settings, "FL_OPENCL_LIBRARY": opencl_host.library_path()}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=opencl_host.HERE, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_loader_is_named():
    said = in_subprocess(TORCH_FL_OPENCL_LIBRARY="/nonexistent/libOpenCL.so.1")
    assert said.startswith("status 1: no OpenCL loader (/nonexistent/libOpenCL.so.1): install")


def test_a_library_that_is_no_loader_is_named():
    said = in_subprocess(TORCH_FL_OPENCL_LIBRARY="libc.so.6")
    assert "the library libc.so.6 is no OpenCL loader" in said


def test_a_loader_without_platforms_says_where_it_looked(plugins, tmp_path):
    said = in_subprocess(OCL_ICD_VENDORS=str(tmp_path))
    assert "OpenCL's loader works but shows no platform" in said


def test_a_forked_child_is_told_to_spawn(plugins):
    code = (
        "import opencl_host, os\n"
        "plugin = opencl_host.Plugin()\n"
        "if os.fork() == 0:\n"
        "    try: opencl_host.Chip(plugin, 0)\n"
        "    except opencl_host.PluginError as error: print(error, flush=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    environment = {**os.environ, "FL_OPENCL_LIBRARY": opencl_host.library_path()}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=opencl_host.HERE, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "use the spawn start method" in done.stdout
