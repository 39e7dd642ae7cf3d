# SPDX-License-Identifier: Apache-2.0
"""The end of a process."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path

from torch_fl import _load


def test_exit_waits_for_autograds_threads_but_not_for_ever() -> None:
    """A stand-in by name: such a thread is busy for a while after the caller went on."""
    done = threading.Event()

    def busy(seconds: float) -> None:
        Path("/proc/thread-self/comm").write_text("pt_autograd_test")
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        done.set()

    for seconds, limit in ((0.1, 5.0), (0.5, 0.05)):
        done.clear()
        thread = threading.Thread(target=busy, args=(seconds,))
        thread.start()
        time.sleep(0.02)  # it has its name
        _load._let_autograd_rest(limit)
        assert done.is_set() == (limit > seconds)
        thread.join()


def test_a_script_may_end_with_a_backward_pass() -> None:
    """On one processor, where threads that are late are later."""
    script = """
import os, torch, torch_fl
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
x = torch.randn(64, 64, device="fl", requires_grad=True)
(x * x).sum().backward()
"""
    for _ in range(3):
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
