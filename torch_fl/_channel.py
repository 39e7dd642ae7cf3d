# SPDX-License-Identifier: Apache-2.0
"""How a worker process tells its parent what it found."""

from __future__ import annotations

import json
import os
from typing import Any, TextIO


class Channel:
    """The way back to the parent. Whatever else prints to stdout goes to stderr."""

    def __init__(self) -> None:
        self._stream: TextIO = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def send(self, **message: Any) -> None:
        """Write one message."""
        self._stream.write(json.dumps(message) + "\n")
        self._stream.flush()
