# SPDX-License-Identifier: Apache-2.0
"""The page about plain libraries: its library is compiled, its descriptor loaded, its script run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "plain_libraries.md"


def block(language: str, start: str = "") -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.S | re.M)
    return next(text for text in found if text.startswith(start))


def test_the_example_works_as_written(tmp_path: Path) -> None:
    (tmp_path / "vendor.c").write_text(block("c"))
    (tmp_path / "vendor.yaml").write_text(block("yaml"))
    subprocess.run(shlex.split(block("sh", "cc")), cwd=tmp_path, check=True)
    environment = {**os.environ, "TORCH_FL_PLUGIN_PATH": "vendor.yaml"}
    result = subprocess.run(
        [sys.executable, "-c", block("python")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert "tensor([ 0.,  3.,  6.,  9., 12., 15., 18., 21.])" in result.stdout
    assert "140.0" in result.stdout
    assert re.search(r"^aten::add kernel 1$", result.stdout, re.M), result.stdout
    assert re.search(r"^aten::dot kernel 1$", result.stdout, re.M), result.stdout
    assert re.search(r"^aten::mul host 1$", result.stdout, re.M), result.stdout
