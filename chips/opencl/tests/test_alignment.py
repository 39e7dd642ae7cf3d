# SPDX-License-Identifier: Apache-2.0
"""Portable kernels on each OpenCL runtime raise no alarm in an alignment: their order of sums is another."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import opencl_host
import pytest
from opencl_chips import EXPECTED, MISSING

pytest.importorskip("torch")
ROOT = pathlib.Path(__file__).resolve().parents[3]
RUNTIMES = [
    pytest.param(name, marks=pytest.mark.skipif(name in MISSING, reason=MISSING.get(name, ""))) for name in EXPECTED
]
MODEL = """
import torch
from torch import nn

def make():
    image = (nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten())
    return nn.Sequential(*image, nn.Linear(54, 16), nn.GELU(), nn.Dropout(), nn.LayerNorm(16), nn.Softmax(-1)), (
        torch.randn(4, 3, 6, 6),
    )
"""


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_right_portable_kernels_raise_no_alarm(runtime: str, tmp_path: pathlib.Path, kernel_cache: str) -> None:
    (tmp_path / "model.py").write_text(MODEL)
    settings = {
        "TORCH_FL_PLUGIN_PATH": opencl_host.library_path(),
        "TORCH_FL_OPENCL_DEVICES": EXPECTED[runtime].strip("()").partition("(")[0],
        "TORCH_FL_CACHE_DIR": kernel_cache,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")])),
    }
    command = [sys.executable, "-m", "torch_fl", "align", f"{tmp_path}/model.py:make", "--json", "-"]
    done = subprocess.run(command, env={**os.environ, **settings}, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    report = json.loads(done.stdout)
    assert report["ok"], report["conclusion"]
    assert sum("portable" in op["routes"] for op in report["ops"]) >= 12
    assert sum(op["probes"] for op in report["ops"]) > 100
