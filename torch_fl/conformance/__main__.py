# SPDX-License-Identifier: Apache-2.0
"""``python -m torch_fl.conformance CHIP`` is ``torch-fl check CHIP``."""

from torch_fl.conformance.cli import app

if __name__ == "__main__":
    app(prog_name="python -m torch_fl.conformance")
