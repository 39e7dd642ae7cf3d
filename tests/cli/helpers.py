# SPDX-License-Identifier: Apache-2.0
"""The command as people run it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

COMMAND = [sys.executable, "-m", "torch_fl"]


def command(*words: str | Path, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `torch-fl` with these words.

    The variables of this process that are torch-fl's are left out, and the one that has Python write at once: it hides
    what becomes of text that is still in a buffer.
    """
    ours = ("TORCH_FL", "TORCHFL", "SIMCHIP", "PYTHONUNBUFFERED")
    clean = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    if "TORCH_FL_PLUGIN_PATH" not in environment and "TORCH_FL_PLUGIN_PATH" in os.environ:
        clean["TORCH_FL_PLUGIN_PATH"] = os.environ["TORCH_FL_PLUGIN_PATH"]
    clean.setdefault("XDG_CONFIG_HOME", "/no/such/folder")
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        cwd=cwd,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def output(*words: str | Path, cwd: Path | None = None, status: int = 0, **environment: str) -> str:
    """Return what a command prints, which must end with this status."""
    result = command(*words, cwd=cwd, **environment)
    assert result.returncode == status, f"{result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def parsed(*words: str | Path, status: int = 0, **environment: str) -> Any:
    """Return what a command prints as JSON."""
    return json.loads(output(*words, "--json", status=status, **environment))
