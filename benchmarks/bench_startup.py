# SPDX-License-Identifier: Apache-2.0
"""What the chip adds to `import torch`: at most 60 ms. Pairs of fresh processes, with and without autoloading.

python -m benchmarks.bench_startup
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks import common

TARGET_MS = 60.0
CODE = "import time; t = time.perf_counter(); import torch; print(time.perf_counter() - t, hasattr(torch, 'fl'))"


def import_seconds(autoload: bool) -> float:
    """Seconds that `import torch` takes in a fresh process."""
    env = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": str(int(autoload)), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", CODE], env=env, cwd="/", capture_output=True, text=True, check=True)
    seconds, loaded = done.stdout.split()
    if (loaded == "True") != autoload:
        raise RuntimeError(f"autoload {autoload}, but torch.fl exists: {loaded}; is torch-fl installed?")
    return float(seconds)


def main() -> None:
    options = common.arguments(__doc__, repeats=11)
    import_seconds(True), import_seconds(False)  # fill the page cache
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(options.repeats):
        for autoload in (True, False) if turn % 2 == 0 else (False, True):
            times[autoload].append(1e3 * import_seconds(autoload))
    # The least of each: what else the machine does only adds, and more than the chip does.
    loaded, plain = min(times[True]), min(times[False])
    detail = f"with {loaded:.0f} ms, without {plain:.0f} ms"
    common.finish("import torch", [common.Row("added by the chip", loaded - plain, "ms", TARGET_MS, detail)], options)


if __name__ == "__main__":
    main()
