# SPDX-License-Identifier: Apache-2.0
"""Whatever lies where a plugin is expected, `import torch` works and `torch_fl.list_plugins()` says what is wrong."""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.plugins.helpers import compile_plugin, later_headers, run_python, succeed

LIST_PLUGINS = """
    import json, torch, torch_fl
    rows = [[p.path, p.source, p.loaded, p.reason, p.chip] for p in torch_fl.list_plugins()]
    devices = [[d.device, d.chip] for d in torch_fl.list_devices()]
    print(json.dumps([rows, devices, (torch.ones(2) + 1).tolist()]))
"""


@dataclass(frozen=True)
class Report:
    """What one process found."""

    plugins: dict[str, tuple[str, bool, str, str]]  # by file name: source, loaded, reason, chip
    devices: list[list[str]]


def load(paths: list[Path]) -> Report:
    """Start PyTorch with these plugins and no others."""
    output = succeed(LIST_PLUGINS, TORCH_FL_PLUGIN_PATH=os.pathsep.join(map(str, paths)))
    rows, devices, two = json.loads(output)
    assert two == [2.0, 2.0]
    return Report({Path(row[0]).name: (row[1], row[2], row[3], row[4]) for row in rows}, devices)


FAKES: dict[str, tuple[str, str]] = {  # name: the macro that breaks it, part of the reason
    "major": ("MAJOR_2", "expected the major version 1, found 2"),
    "declines": ("NULL_WITH_MESSAGE", "driver 3 or later expected, found 2"),
    "no_reason": ("NULL_WITHOUT_MESSAGE", "the plugin gave no reason"),
    "small": ("PLUGIN_SIZE_SMALL", "fl_plugin.struct_size is 40, but 112 to 65536 was expected"),
    "huge": ("PLUGIN_SIZE_HUGE", "fl_plugin.struct_size is 2147483647"),
    "wild": ("PLUGIN_POINTER_WILD", "pointer to no readable memory"),
    "memory_size": ("MEMORY_SIZE_HUGE", "the table memory.struct_size is 3735928559"),
    "memory_null": ("MEMORY_NULL", "the table memory is null"),
    "no_alloc": ("MEMORY_ALLOC_NULL", "the function memory.alloc is null"),
    "kernels_many": ("KERNELS_TOO_MANY", "n_kernels is 100001, but at most 100000"),
    "kernels_wild": ("KERNELS_WILD", "less readable memory than its 2 rows need"),
    "bad_op": ("KERNEL_OP_BAD", 'names the operator "add.Tensor"'),
    "twice": ("KERNEL_TWICE", "names the operator aten::relu for the second time"),
    "no_devices": ("DEVICES_0", "found no device of the chip no_devices"),
    "driver": ("COUNT_FAILS", "the driver is asleep"),
    "alignment": ("ALIGNMENT_48", "alignment is 48, but a power of two was expected"),
}

FILES = {  # name: part of the reason
    "libfl_text.so": 'expected a shared library (ELF), found a text file that starts with "#!/bin/sh"',
    "libfl_empty.so": "expected a shared library (ELF), found an empty file",
    "libfl_cut.so": "the file is cut short",
    "libfl_riscv.so": "found one for RISC-V",
    "libfl_missing.so": "No such file or directory",
    "libfl_no_symbol.so": "expected an exported function fl_plugin_get, found none",
    "libfl_throws.so": "fl_plugin_get threw a C++ exception: get is broken",
}


def _write_files(folder: Path, good: Path) -> None:
    elf = bytearray(good.read_bytes())
    (folder / "libfl_text.so").write_text("#!/bin/sh\nexit 0\n")
    (folder / "libfl_empty.so").write_bytes(b"")
    (folder / "libfl_cut.so").write_bytes(bytes(elf[: len(elf) // 2]))
    elf[18:20] = struct.pack("<H", 243)  # e_machine
    (folder / "libfl_riscv.so").write_bytes(bytes(elf))
    compile_plugin(folder, "no_symbol", source="no_symbol.c")
    compile_plugin(folder, "throws", ["THROW_IN_GET"], source="throwing.cpp")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """One process that meets all the broken plugins, and a good one last."""
    folder = tmp_path_factory.mktemp("plugins")
    paths = [compile_plugin(folder, name, [macro]) for name, (macro, _) in FAKES.items()]
    good = compile_plugin(folder, "good")
    _write_files(folder, good)
    return load([*paths, *(folder / name for name in FILES), good])


@pytest.mark.parametrize("name", FAKES)
def test_a_broken_plugin_is_skipped_with_its_reason(report: Report, name: str) -> None:
    source, loaded, reason, chip = report.plugins[f"libfl_{name}.so"]
    assert not loaded
    assert chip == ""
    assert source == "TORCH_FL_PLUGIN_PATH"
    assert FAKES[name][1] in reason


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_plugin_is_skipped_with_its_reason(report: Report, name: str) -> None:
    _, loaded, reason, _ = report.plugins[name]
    assert not loaded
    assert FILES[name] in reason


def test_a_good_plugin_serves_beside_broken_ones(report: Report) -> None:
    assert report.plugins["libfl_good.so"] == ("TORCH_FL_PLUGIN_PATH", True, "", "good")
    assert report.devices == [["fl:0", "good"], ["fl:1", "good"]]


def test_plugins_of_earlier_and_later_minors_serve(tmp_path: Path) -> None:
    headers = later_headers(tmp_path)
    source = str(headers / "torch_fl" / "fl_plugin.h")
    later = compile_plugin(tmp_path, "later", ['FL_TEST_HEADER="' + source + '"'])
    found = load([later, compile_plugin(tmp_path, "same")])
    assert [found.plugins[f"libfl_{name}.so"][1] for name in ("later", "same")] == [True, True]
    assert [chip for _, chip in found.devices] == ["later", "later", "same", "same"]


def test_the_same_chip_twice_is_skipped(tmp_path: Path) -> None:
    first = compile_plugin(tmp_path, "first")
    again = tmp_path / "libfl_again.so"
    again.write_bytes(first.read_bytes())
    found = load([first, again])
    assert found.plugins["libfl_again.so"][2] == f"a chip named first has been loaded already, from {first}"
    assert len(found.devices) == 2


def test_without_any_chip_pytorch_works_and_fl_says_so(tmp_path: Path) -> None:
    code = """
        import torch, torch_fl
        assert not torch.fl.is_available() and torch.fl.device_count() == 0
        try:
            torch.ones(2, device="fl")
        except RuntimeError as error:
            print(error)
    """
    output = succeed(code, TORCH_FL_PLUGIN_PATH=str(tmp_path / "libfl_none.so"))
    assert "invalid device index 0: there are no fl devices, because no chip's plugin was loaded" in output
    assert "python -m torch_fl shows why" in output


def test_the_command_line_shows_the_reason(tmp_path: Path) -> None:
    (tmp_path / "libfl_text.so").write_text("hello\n")
    code = "import runpy; runpy.run_module('torch_fl', run_name='__main__')"
    result = run_python(code, TORCH_FL_PLUGIN_PATH=str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "skipped: expected a shared library (ELF), found a text file that starts with" in result.stdout


def test_tensors_on_a_chip_without_kernels(tmp_path: Path) -> None:
    """The fake chip's kernels do nothing, so only what it has none for is computed."""
    code = """
        import torch, torch_fl
        x = torch.arange(6.0, device="fl:1").reshape(2, 3)
        print((x.exp().sum() * 2).item(), x.device, torch.fl.memory_allocated(1))
        try:
            torch.empty(2**40, device="fl")
        except torch.OutOfMemoryError as error:
            print(error)
    """
    output = succeed(code, TORCH_FL_PLUGIN_PATH=str(compile_plugin(tmp_path, "plain")))
    assert "468.4" in output
    assert "fl:1" in output
    assert "Tried to allocate 4096.00 GiB" in output or "Tried to allocate 4.00 TiB" in output
