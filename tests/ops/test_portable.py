# SPDX-License-Identifier: Apache-2.0
"""The portable kernels, on the simulated chip with its own kernels hidden."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import device
from tests.ops import portable

COVERED = 665  # of 672 entries that know float32


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
@pytest.mark.parametrize("family", portable.FAMILIES)
def test_agree_with_the_cpu_and_need_no_host(family: str, tmp_path: Path, kernel_cache: str) -> None:
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    portable.check(portable.FAMILIES[family], tmp_path, environment, "float32", samples=4)


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
@pytest.mark.parametrize("family", ["pooling", "resampling", "gates and margins", "shapes"])
def test_gradients_agree(family: str, tmp_path: Path, kernel_cache: str) -> None:
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    portable.check(portable.FAMILIES[family], tmp_path, environment, "float32", variants="backward", samples=2)


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
@pytest.mark.parametrize(
    ("file", "policy"), [("test_images.py", "deny"), ("test_empty_and_scalar_tensors.py", "allow")], ids=str
)
def test_behaviour_beyond_the_suite(file: str, policy: str, tmp_path: Path, kernel_cache: str) -> None:
    """In a process without OpenCL: a runtime's handlers of signals would hide a division by zero."""
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache, "TORCH_FL_FALLBACK": policy}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/behaviour/{file}"]
    done = subprocess.run(
        command, cwd=portable.ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_normalisations_and_their_gradients(tmp_path: Path, kernel_cache: str) -> None:
    """Not with running statistics that have gaps, which no kernel takes."""
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    names = portable.NORMS.split()
    portable.check(names, tmp_path, environment, "float32", variants="forward,strides,method,backward", samples=4)


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_kernels_of_networks(tmp_path: Path, kernel_cache: str) -> None:
    """Sizes that need several items, and what OpInfo has no samples of."""
    environment = {**os.environ, "SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    environment["TORCH_FL_FALLBACK"] = "deny"
    command = [sys.executable, "-m", "tests.ops.portable_network"]
    done = subprocess.run(command, cwd=portable.ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_every_form_agrees(tmp_path: Path, kernel_cache: str) -> None:
    """In-place and out= forms and errors, some of which are the host's."""
    names = ["add", "clamp", "nn.functional.gelu", "where", "sum", "any", "addmm", "softmax"]
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    dtypes = "float32,bfloat16,int64,bool"
    figures = portable.check(names, tmp_path, environment, dtypes, variants=None, policy="allow", samples=4)
    assert figures["native_share"] > 0.7


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_coverage_without_the_host(tmp_path: Path, kernel_cache: str) -> None:
    """Of all operators of PyTorch's database; python -m tests.ops.run --policy deny says which are missing."""
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    figures = portable.run(["*"], tmp_path, environment, "float32", variants="forward", samples=2)
    assert figures["forward"]["passed"] >= COVERED, figures["host_operators"]


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_large_sizes_agree(tmp_path: Path, kernel_cache: str) -> None:
    environment = {**os.environ, "SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    command = [sys.executable, "-m", "tests.ops.portable_sizes"]
    done = subprocess.run(
        command, cwd=portable.ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
@pytest.mark.parametrize(
    ("names", "dtype"), [(portable.COMPLEX, "complex64"), (portable.INTEGERS, "int64")], ids=["complex", "integers"]
)
def test_types_of_their_own(names: str, dtype: str, tmp_path: Path, kernel_cache: str) -> None:
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    portable.check(names.split(), tmp_path, environment, dtype, variants="forward,noncontiguous", samples=3)


@pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")
def test_gradients_of_products_and_convolutions(tmp_path: Path, kernel_cache: str) -> None:
    environment = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": kernel_cache}
    names = ["bmm", "addmm", "nn.functional.conv2d", "nn.functional.conv_transpose2d"]
    portable.check(names, tmp_path, environment, "float32,float64,bfloat16", variants="backward", samples=4)
