# SPDX-License-Identifier: Apache-2.0
"""``python -m torch_fl``: the command ``torch-fl``."""

from torch_fl.cli import main

if __name__ == "__main__":
    main()
