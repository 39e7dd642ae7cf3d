# SPDX-License-Identifier: Apache-2.0
"""A clean build on two cores: at most 6 minutes. Builds a copy of the tracked files, without a compiler cache.

python -m benchmarks.build_time
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

TARGET_MINUTES = 6.0


def build(folder: Path) -> float:
    """Minutes to build a wheel of the tracked files from nothing."""
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=common.ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    env = {**os.environ, "CCACHE_DISABLE": "1", "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        ".",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(folder / "out"),
    ]
    start = time.monotonic()
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the build failed:\n{done.stdout[-3000:]}\n{done.stderr[-1000:]}")
    return (time.monotonic() - start) / 60


def main() -> None:
    options = common.arguments(__doc__)
    with tempfile.TemporaryDirectory() as name:
        minutes = build(Path(name))
    common.finish("clean build", [common.Row("wheel, no cache, 2 jobs", minutes, "minutes", TARGET_MINUTES)], options)


if __name__ == "__main__":
    main()
