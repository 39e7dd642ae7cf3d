# SPDX-License-Identifier: Apache-2.0
"""The command ``torch-fl``, also ``python -m torch_fl``. Neither torch nor a chip is loaded until one is needed."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line; the entry point of the console script."""
    from torch_fl.cli.app import app
    from torch_fl.cli.errors import CommandError

    try:
        app(prog_name=program_name())
    except CommandError as error:
        print(f"{program_name()}: {error}", file=sys.stderr)
        sys.exit(error.status)
    except BrokenPipeError:  # the reader of a pipe had enough
        sys.stderr.close()
        sys.exit(1)


def program_name() -> str:
    """Return the program as the user called it."""
    return "python -m torch_fl" if sys.argv[0].endswith("__main__.py") else "torch-fl"
