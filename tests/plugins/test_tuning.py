# SPDX-License-Identifier: Apache-2.0
"""Tiles are measured once on a device, remembered, and change no result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness import device

pytestmark = pytest.mark.skipif(device.is_stock(), reason="about a chip with a compiler")

WORK = """
import hashlib, sys, torch, torch_fl
torch.manual_seed(0)
large, small = torch.randn(520, 520), torch.randn(64, 64)
found = [torch.mm(small.to("fl"), small.to("fl")).cpu()]
if sys.argv[1] == "large":
    found.append(torch.mm(large.to("fl"), large.to("fl")).cpu())
    assert torch.allclose(found[1], large @ large, atol=1e-3)
    images, filters = torch.randn(2, 37, 30, 31), torch.randn(29, 37, 3, 3)
    found.append(torch.nn.functional.conv2d(images.to("fl"), filters.to("fl"), padding=1).cpu())
print(hashlib.sha256(b"".join(x.numpy().tobytes() for x in found)).hexdigest())
"""


def run(folder: Path, size: str = "large", **environment: str) -> tuple[str, str]:
    """What it printed and logged."""
    settings = {"SIMCHIP_HIDE_KERNELS": "2", "TORCH_FL_CACHE_DIR": str(folder), "TORCH_FL_LOG": "info", **environment}
    command = [sys.executable, "-c", WORK, size]
    environment = {**os.environ, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout, done.stderr


def kept(folder: Path) -> list[Path]:
    return sorted((folder / "tuning").glob("*"))


def test_measured_once_and_without_a_trace_in_results(tmp_path: Path) -> None:
    plain, log = run(tmp_path, TORCH_FL_TUNE="0")
    assert "tuning" not in log
    assert not kept(tmp_path)
    tuned, log = run(tmp_path)
    assert "GFLOP/s" in log
    assert len(kept(tmp_path)) == 1
    again, log = run(tmp_path)
    assert "tuning" not in log
    assert plain == tuned == again


def test_small_work_does_not_wait_for_it(tmp_path: Path) -> None:
    assert "tuning" not in run(tmp_path, "small")[1]


def test_a_damaged_file_is_measured_anew(tmp_path: Path) -> None:
    run(tmp_path)
    (file,) = kept(tmp_path)
    text = file.read_text()
    key = text.split("\n", 1)[0]
    for broken in ("", "x" + text, f"{key}\nmany\n", f"{key}\n4\n0 2 16 1\n", f"{key}\n4\n12 2 16 nan\n"):
        file.write_text(broken)
        assert "GFLOP/s" in run(tmp_path)[1]
        assert file.read_text().split("\n", 1)[0] == key


def test_a_long_wait_is_explained(tmp_path: Path) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nsleep 0.4\nexec cc "$@"\n')
    compiler.chmod(0o755)
    log = run(tmp_path, SIMCHIP_CC=str(compiler), TORCH_FL_LOG="warning")[1]
    assert "tuning f32 on" in log
    assert "compiling tile" in log
    assert "TORCH_FL_TUNE=0" in log
