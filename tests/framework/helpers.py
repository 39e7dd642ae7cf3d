# SPDX-License-Identifier: Apache-2.0
"""What the framework tests share: comparison with the CPU, child processes, the second device."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]

needs_two_devices = pytest.mark.skipif(
    torch.accelerator.device_count() < 2 if torch.accelerator.is_available() else True, reason="needs two devices"
)


def assert_same(actual: torch.Tensor, expected: torch.Tensor, **tolerances: float) -> None:
    """Compare a device tensor with the CPU's."""
    torch.testing.assert_close(actual.detach().cpu(), expected.detach(), **tolerances)


def run_child(code: str, timeout: float = 120.0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process; extra keywords are environment variables. Fails on a non-zero exit."""
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def twin(module: torch.nn.Module, device: str = "fl") -> torch.nn.Module:
    """Return a copy of the module on the device."""
    import copy

    return copy.deepcopy(module).to(device)


def grads(module: torch.nn.Module) -> dict[str, Any]:
    """Return the gradients of a module's parameters, by name."""
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def assert_same_grads(actual: torch.nn.Module, expected: torch.nn.Module, **tolerances: float) -> None:
    """Compare the gradients of two modules of one architecture, the second on the CPU."""
    found = grads(actual)
    for name, gradient in grads(expected).items():
        assert found[name] is not None, f"{name} has no gradient"
        assert_same(found[name], gradient, **tolerances)
