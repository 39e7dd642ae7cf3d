# SPDX-License-Identifier: Apache-2.0
"""Building fake plugins, and running Python in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAKES = ROOT / "tests" / "runtime" / "fakes"
HEADERS = ROOT / "include"
TIMEOUT = 120.0  # seconds, for one process


def compile_plugin(folder: Path, name: str, defines: Sequence[str] = (), source: str = "fake_plugin.c") -> Path:
    """Compile one of the fake plugins of the runtime's own tests; the chip is named after the plugin."""
    library = folder / f"libfl_{name}.so"
    is_cxx = source.endswith(".cpp")
    compiler = os.environ.get("CXX" if is_cxx else "CC") or ("c++" if is_cxx else "cc")
    macros = [f"-D{define}" for define in (f'CHIP="{name}"', *defines)]
    command = [compiler, "-shared", "-fPIC", f"-I{HEADERS}", *macros, str(FAKES / source), "-o", str(library)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return library


def later_headers(folder: Path) -> Path:
    """Write fl_plugin.h as a later minor version might be, and return the folder to include."""
    target = folder / "later" / "torch_fl" / "fl_plugin.h"
    target.parent.mkdir(parents=True)
    source = HEADERS / "torch_fl" / "fl_plugin.h"
    script = ROOT / "tests" / "runtime" / "later_minor.cmake"
    cmake = shutil.which("cmake")
    assert cmake is not None, "cmake is needed, as for building the project"
    subprocess.run([cmake, f"-DIN={source}", f"-DOUT={target}", "-P", str(script)], check=True)
    return folder / "later"


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a new process, with extra environment variables. Its output is captured, its status not judged."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_FL", "TORCHFL", "SIMCHIP"))}
    chooses = any(key.startswith(("TORCH_FL", "TORCHFL")) and key.endswith(("PATH", "DIR")) for key in environment)
    if not chooses and "TORCH_FL_PLUGIN_PATH" in os.environ:  # the chip that the suites are about
        clean["TORCH_FL_PLUGIN_PATH"] = os.environ["TORCH_FL_PLUGIN_PATH"]
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        env={**clean, **environment},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )


def succeed(code: str, **environment: str) -> str:
    """Run code in a new process that must end cleanly, and return what it printed."""
    result = run_python(code, **environment)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result.stdout
