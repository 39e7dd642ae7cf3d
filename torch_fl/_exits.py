# SPDX-License-Identifier: Apache-2.0
"""How child processes end, in words."""

from __future__ import annotations

import signal


def _signal_name(number: int) -> str:
    """Return ``SIGTERM`` for 15; signals without a name have their number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def ended(status: int) -> str:
    """Say how a process ended whose status is that of `subprocess.Popen`: negative for a signal."""
    return _signal_name(-status) if status < 0 else f"exit status {status}"


def shell_status(status: int) -> int:
    """Return the same as a shell has it: 128 and its number for a signal."""
    return 128 - status if status < 0 else status
