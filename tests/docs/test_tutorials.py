# SPDX-License-Identifier: Apache-2.0
"""Each tutorial is followed: its files are written, its commands typed, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TUTORIALS = ROOT / "docs" / "tutorials"


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", (TUTORIALS / page).read_text(), re.S | re.M)


def type_in(folder: Path, commands: str) -> str:
    """Run a block of commands as a person would, from the folder, with this Python's programs first."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCH_FL_", "SIMCHIP_"))}
    environment |= {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TORCH_FL": str(ROOT),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    result = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, f"{commands}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def rows(table: str) -> dict[str, set[str]]:
    """The routes that each operator of a printed table of counters took."""
    routes: dict[str, set[str]] = {}
    for op, route in re.findall(r"^\d+\s+(\S+)\s+\S+ \d+\s+(\w+)", table, re.M):
        routes.setdefault(op, set()).add(route)
    return routes


def lines_of_code(source: str) -> int:
    """Lines that are neither empty nor only a comment."""
    return sum(1 for line in source.splitlines() if line.strip() and not re.fullmatch(r"\s*/\*.*\*/\s*", line))


def test_yaml_only(tmp_path: Path) -> None:
    (descriptor,) = blocks("yaml_only.md", "yaml")
    assert len(descriptor.splitlines()) <= 80
    (tmp_path / "blas.yaml").write_text(descriptor)
    (tmp_path / "train.py").write_text(*blocks("yaml_only.md", "python"))
    output = type_in(tmp_path, "\n".join(blocks("yaml_only.md", "sh")))
    accuracy = re.search(r"loss \S+, ([\d.]+)% of the digits", output)
    assert accuracy is not None
    assert float(accuracy[1]) > 85
    assert rows(output)["aten::mm"] == {"kernel"}, output
    assert "aten::mm on blas: kernel aten::mm (float32, float64" in output


def test_a_misspelt_key_is_told_with_its_line(tmp_path: Path) -> None:
    (descriptor,) = blocks("yaml_only.md", "yaml")
    (tmp_path / "blas.yaml").write_text(descriptor.replace("supported_ops", "suported_ops"))
    result = subprocess.run(
        [sys.executable, "-m", "torch_fl", "validate", "blas.yaml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 1
    said = result.stdout + result.stderr
    assert "supported_ops" in said
    assert re.search(r"blas\.yaml:6\b", said), said


def test_c_plugin(tmp_path: Path) -> None:
    (source,) = blocks("c_plugin.md", "c")
    assert lines_of_code(source) <= 60
    (tmp_path / "npu.c").write_text(source)
    (tmp_path / "forward.py").write_text(*blocks("c_plugin.md", "python"))
    output = type_in(tmp_path, "\n".join(blocks("c_plugin.md", "sh")))
    routes = rows(output)
    assert routes["aten::relu_"] == {"kernel"}, output
    assert routes["aten::add.Tensor"] == {"kernel"}, output
    assert routes["aten::convolution"] == {"host"}, output


def test_compiler(tmp_path: Path) -> None:
    (tmp_path / "try_npu.py").write_text(*blocks("compiler.md", "python"))
    output = type_in(tmp_path, "\n".join(blocks("compiler.md", "sh")))
    assert "portable" in output


@pytest.mark.parametrize("page", sorted(page.name for page in TUTORIALS.glob("*.md")))
def test_every_tutorial_is_followed(page: str) -> None:
    assert f'"{page}"' in Path(__file__).read_text()
