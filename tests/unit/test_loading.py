# SPDX-License-Identifier: Apache-2.0
"""Ways to import, each in a process of its own: what works must work whichever way, what fails must say why."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

WRONG_TORCH = """
import sys, types
fake = types.ModuleType("torch_fl._build_info")
fake.BUILT_FOR_TORCH = "1.0.0"
sys.modules["torch_fl._build_info"] = fake
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "imports",
    ["import torch", "import torch, torch_fl", "import torch_fl, torch", "import torch_fl, torch, torch_fl.routing"],
)
def test_any_order_of_imports(imports: str) -> None:
    result = run(f"{imports}\nprint(torch.device('fl:0').type, torch.fl.__name__, torch.fl.device_count() >= 0)")
    assert result.stdout.split() == ["fl", "torch_fl.device", "True"], result.stderr
    assert result.stderr == ""


def test_registration_happens_once() -> None:
    result = run("import torch, torch_fl\ntorch_fl._autoload(); torch_fl._load.initialize(); print('fine')")
    assert result.stdout.strip() == "fine", result.stderr


def test_autoload_can_be_switched_off() -> None:
    code = "import torch\nprint(hasattr(torch, 'fl'))\nimport torch_fl\nprint(hasattr(torch, 'fl'))"
    result = run(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.stdout.split() == ["False", "True"], result.stderr


def test_no_chip_is_no_problem() -> None:
    code = "import torch\nprint(torch.fl.is_available(), torch.fl.device_count(), torch.ones(2).sum().item())"
    result = run(code, TORCH_FL_PLUGIN_PATH="")
    assert result.stdout.split() == ["False", "0", "2.0"], result.stderr


def test_a_query_without_a_chip_says_where_the_reasons_are() -> None:
    result = run("import torch_fl\nprint(torch_fl.query_op('sort'))", TORCH_FL_PLUGIN_PATH="")
    assert result.stdout.strip() == "aten::sort: no chip is loaded; python -m torch_fl says why", result.stderr


def test_another_torch_leaves_pytorch_working_and_warns() -> None:
    result = run(WRONG_TORCH + "import torch\nprint(torch.ones(2).sum().item(), hasattr(torch, 'fl'))")
    assert result.stdout.split() == ["2.0", "False"], result.stderr
    assert "torch_fl was compiled for torch 1.0.0, but this is torch 2." in result.stderr
    assert "pip install --no-build-isolation" in result.stderr


def test_another_torch_is_an_error_for_who_asks_for_the_device() -> None:
    result = run(WRONG_TORCH + "import torch_fl", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 1
    assert "LoadError: torch_fl was compiled for torch 1.0.0, but this is torch 2." in result.stderr


def test_command_prints_devices_and_plugins() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "TORCH_FL_PLUGIN_PATH"}
    command = [sys.executable, "-m", "torch_fl"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert re.search(r"fl:\d+  sim", result.stdout)
    assert "[built-in]  loaded as sim" in result.stdout


@pytest.mark.parametrize("words", [["nonsense"], ["--nonsense"]])
def test_command_refuses_arguments(words: list[str]) -> None:
    result = subprocess.run([sys.executable, "-m", "torch_fl", *words], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("Usage: python -m torch_fl")


def test_command_has_help() -> None:
    result = subprocess.run([sys.executable, "-m", "torch_fl", "--help"], capture_output=True, text=True, check=True)
    assert result.stdout.startswith("Usage: python -m torch_fl")
    assert "fl:0" not in result.stdout


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_command_reports_a_setting_that_cannot_be(autoload: str) -> None:
    environment = {**os.environ, "TORCH_FL_FALLBACK": "bogus", "TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    command = [sys.executable, "-m", "torch_fl"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "inactive: TORCH_FL_FALLBACK: 'bogus' is not one of allow, warn, deny" in result.stdout
    assert "Traceback" not in result.stderr


def test_command_reports_a_plugin_that_does_not_load() -> None:
    environment = {**os.environ, "TORCH_FL_PLUGIN_PATH": "/no/such/plugin.so"}
    command = [sys.executable, "-m", "torch_fl"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert "/no/such/plugin.so  [TORCH_FL_PLUGIN_PATH]  skipped: " in result.stdout
