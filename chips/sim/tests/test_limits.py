# SPDX-License-Identifier: Apache-2.0
"""Behind a driver that trusts its caller the chip aborts on whatever its limits forbid."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LIMITS = {
    "SIMCHIP_TRUSTING": "1",
    "SIMCHIP_DTYPES": "float16",
    "SIMCHIP_CONV_CHANNELS_LAST": "1",
    "SIMCHIP_CONV_STRIDES": "1,2,4",
    "SIMCHIP_MATMUL_MULTIPLE": "128",
}

PROGRAM = """
import torch
from nn_host import Host
host = Host()

def mm(m, k, n, dtype=torch.float16):
    host.run("aten::mm", [torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype)], [torch.empty(m, n, dtype=dtype)])

def conv(stride, layout):
    x = torch.ones(1, 8, 8, 8, dtype=torch.float16).contiguous(memory_format=layout)
    w = torch.ones(4, 8, 1, 1, dtype=torch.float16).contiguous(memory_format=layout)
    size = (8 - 1) // stride + 1
    out = torch.empty(1, 4, size, size, dtype=torch.float16).contiguous(memory_format=layout)
    host.run("aten::convolution", [x, w, None, [stride] * 2, [0, 0], [1, 1], False, [0, 0], 1], [out])

CALL
"""


def outcome(call: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **LIMITS, **settings, "PYTHONPATH": str(Path(__file__).parent)}
    program = PROGRAM.replace("CALL", call)
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)


def test_what_the_chip_can_do_it_does() -> None:
    calls = "mm(128, 256, 128)", "mm(0, 128, 128)", "conv(1, torch.channels_last)", "conv(2, torch.channels_last)"
    result = outcome("; ".join(calls))
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize(
    ("call", "text"),
    [
        ("mm(128, 128, 128, torch.float32)", "aten::mm asked for element type"),
        ("mm(127, 128, 128)", "a matrix size of 127, no multiple of 128"),
        ("mm(128, 128, 1)", "a matrix size of 1,"),
        ("conv(1, torch.contiguous_format)", "an image that is not channels-last"),
        ("conv(3, torch.channels_last)", "a stride of 3"),
        ("host.run('aten::relu', [torch.ones(9).half()[1:]], [torch.ones(8).half()])", "not aligned to 64 bytes"),
    ],
)
def test_what_it_cannot_do_ends_the_process(call: str, text: str) -> None:
    result = outcome(call)
    assert result.returncode == -6, result.stderr
    assert text in result.stderr
