# SPDX-License-Identifier: Apache-2.0
"""Plain C libraries as chips, from the descriptor to the results, each in a process of its own."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
OPENBLAS = ROOT / "chips" / "openblas" / "openblas.yaml"


def has_openblas() -> bool:
    try:
        ctypes.CDLL("libopenblas.so.0")
    except OSError:
        return False
    return True


needs_openblas = pytest.mark.skipif(not has_openblas(), reason="libopenblas.so.0 is not installed")


def run(code: str, *descriptors: Path, **environment: str) -> str:
    path = os.pathsep.join(map(str, descriptors))
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, "TORCH_FL_PLUGIN_PATH": path, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@needs_openblas
def test_products_run_in_openblas() -> None:
    run(
        """
        import itertools, torch, torch_fl
        from torch.testing import assert_close

        def kernels(op):
            return sum(row.calls for row in torch_fl.counters() if row.op == op and row.route == "kernel")

        torch.manual_seed(0)
        for dtype, ta, tb, (m, k, n) in itertools.product(
            (torch.float32, torch.float64), (False, True), (False, True), ((3, 4, 5), (1, 1, 1), (1, 7, 2), (64, 3, 1))
        ):
            a = torch.randn((k, m) if ta else (m, k), dtype=dtype)
            b = torch.randn((n, k) if tb else (k, n), dtype=dtype)
            on_cpu = [t.t() if turned else t for t, turned in ((a, ta), (b, tb))]
            on_chip = [t.to("fl").t() if turned else t.to("fl") for t, turned in ((a, ta), (b, tb))]
            bias = torch.randn(n, dtype=dtype)
            torch_fl.reset_counters()
            assert_close(torch.mm(*on_chip).cpu(), torch.mm(*on_cpu))
            assert kernels("aten::mm") == 1, torch_fl.counters()
            assert_close(torch.addmm(bias.to("fl"), *on_chip, beta=2, alpha=0.5).cpu(),
                         torch.addmm(bias, *on_cpu, beta=2, alpha=0.5))
            assert kernels("aten::addmm") == 1, torch_fl.counters()
        x, y = torch.randn(10), torch.randn(10)
        torch_fl.reset_counters()
        assert_close(torch.dot(x.to("fl"), y.to("fl")).cpu(), torch.dot(x, y))
        assert_close(torch.dot(x.to("fl")[::2], y.to("fl")[:5]).cpu(), torch.dot(x[::2], y[:5]))
        assert_close(torch.mv(torch.ones(3, 10).to("fl"), x.to("fl")).cpu(), torch.mv(torch.ones(3, 10), x))
        assert_close(torch.add(x.to("fl"), y.to("fl"), alpha=3).cpu(), torch.add(x, y, alpha=3))
        assert kernels("aten::dot") == 2 and kernels("aten::mv") == 1 and kernels("aten::add") == 1
        z = x.to("fl")
        z.add_(z)
        assert_close(z.cpu(), x + x)
        out = y.to("fl")
        torch.add(x.to("fl"), out, out=out)
        assert_close(out.cpu(), x + y)
        assert_close((x.to("fl") + torch.arange(10).to("fl")).cpu(), x + torch.arange(10))
        """,
        OPENBLAS,
    )


@needs_openblas
def test_what_openblas_cannot_take_goes_elsewhere() -> None:
    output = run(
        """
        import torch, torch_fl
        a = torch.randn(4, 6).to("fl")[:, ::2]
        torch.testing.assert_close(torch.mm(a, torch.ones(3, 2).to("fl")).cpu(), torch.mm(a.cpu(), torch.ones(3, 2)))
        torch.mm(torch.ones(2, 2, dtype=torch.float16, device="fl"), torch.ones(2, 2, dtype=torch.float16, device="fl"))
        for row in torch_fl.counters():
            print(row.op, row.route, row.reason)
        """,
        OPENBLAS,
    )
    assert re.search(r"aten::mm host .*required that .*stride", output), output
    assert "aten::mm kernel" not in output


@needs_openblas
def test_a_network_trains_on_openblas() -> None:
    output = subprocess.run(
        [sys.executable, "examples/openblas_mlp.py", "--epochs", "2"],
        cwd=ROOT,
        env={key: value for key, value in os.environ.items() if key != "TORCH_FL_PLUGIN_PATH"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "loaded as openblas" in output
    losses = re.findall(r"loss ([\d.]+) on OpenBLAS, ([\d.]+) on the CPU", output)
    assert len(losses) == 2
    for chip, cpu in losses:
        assert float(chip) == pytest.approx(float(cpu), rel=1e-3)
    calls = dict(re.findall(r"^(aten::\w+) +kernel +(\d+) calls$", output, re.M))
    assert int(calls["aten::addmm"]) >= 2 * 2 * 15
    assert int(calls["aten::mm"]) >= 2 * 3 * 15


def describe(folder: Path, text: str, name: str = "chip.yaml") -> Path:
    file = folder / name
    file.write_text(textwrap.dedent(text))
    return file


def plugins(*descriptors: Path) -> str:
    return run("import torch_fl\nfor plugin in torch_fl.list_plugins(): print(plugin)", *descriptors)


def test_mistakes_skip_the_chip_and_are_located(tmp_path: Path) -> None:
    text = (
        "runtime_so: libc.so.6\nsupported_ops:\n"
        "  - {name: aten::mm, impl: f, signature: void f(int), args: [selv.size(0)]}\n"
    )
    output = plugins(describe(tmp_path, text))
    assert "chip.yaml:3:" in output
    assert "skipped" in output
    assert "did you mean 'self'?" in output


@pytest.mark.parametrize(
    "text, expected",
    [
        (
            "runtime_so: libnothing_here.so.3\n",
            r"chip\.yaml:1:13: runtime_so: the library libnothing.*cannot be used",
        ),
        (
            "runtime_so: libc.so.6\nsupported_ops:\n  - {name: aten::relu, impl: no_such_name, signature: void f()}\n",
            r"chip\.yaml:3:.*: supported_ops\[0\]\.impl: .*found none named no_such_name",
        ),
        (
            "runtime_so: libc.so.6\nsupported_ops:\n  - {name: aten::mm}\n",
            "rules for aten::mm, but .* has no kernel",
        ),
        ("runtime_so: ./absent.so\n", "absent.so"),
    ],
)
def test_what_the_library_does_not_have_is_located(tmp_path: Path, text: str, expected: str) -> None:
    output = plugins(describe(tmp_path, text))
    assert re.search(expected, output), output
    assert "skipped" in output


def test_a_library_of_the_system_is_a_chip(tmp_path: Path) -> None:
    text = """
    name: c
    device_type: libc
    runtime_so: libc.so.6
    capabilities: {memory: {total: 64MiB}}
    """
    output = run(
        """
        import torch, torch_fl
        x = torch.arange(4, device="fl")
        assert (x + x).tolist() == [0, 2, 4, 6]
        (device,) = torch_fl.list_devices()
        print(device, device.capabilities)
        try:
            torch.empty(128 << 20, dtype=torch.uint8, device="fl")
        except torch.OutOfMemoryError as error:
            print("out of memory")
        """,
        describe(tmp_path, text),
    )
    assert "64 MiB ('host_coherent',)" in output
    assert "out of memory" in output


def test_one_library_is_one_chip(tmp_path: Path) -> None:
    first = describe(tmp_path, "runtime_so: libc.so.6\n", "first.yaml")
    second = describe(tmp_path, "runtime_so: libc.so.6\n", "second.yaml")
    output = plugins(first, second)
    assert "loaded as first" in output
    assert re.search(r"second\.yaml.*skipped: its library libc\.so\.6 has been loaded already", output)


def test_a_plugin_gets_what_its_descriptor_says(tmp_path: Path) -> None:
    sim = os.environ.get("FL_SIM_LIBRARY", str(ROOT / "torch_fl/chips/sim/libfl_sim.so"))
    text = f"""
    runtime_so: {sim}
    capabilities: {{dtypes: [float32]}}
    supported_ops:
      - name: aten::relu
        constraints: {{arguments: {{self: {{size_multiple: {{-1: 8}}}}}}}}
    """
    output = run(
        """
        import torch, torch_fl
        torch.relu(torch.ones(3, 16, device="fl")), torch.relu(torch.ones(3, 12, device="fl"))
        print(torch_fl.list_devices()[0].dtypes)
        for row in torch_fl.counters():
            if row.op == "aten::relu": print(row.route, row.reason)
        """,
        describe(tmp_path, text),
    )
    assert "('float32',)" in output
    assert re.search(r"^kernel ", output, re.M)
    assert re.search(r"self\.size\(-1\) must be a multiple of 8, found 12", output), output


def test_without_descriptors_nothing_is_imported_for_them() -> None:
    output = run("import sys, torch, torch_fl\nprint([m for m in ('pydantic', 'yaml') if m in sys.modules])")
    assert output.strip() == "[]"
