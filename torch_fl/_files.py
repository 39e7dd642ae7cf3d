# SPDX-License-Identifier: Apache-2.0
"""Files that are there as a whole or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it; a pipe, a device or a link's target is written as it is."""
    if path.is_symlink() or (path.exists() and not path.is_file()) or not os.access(path.parent, os.W_OK):
        _write_in_place(path, text)
        return
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:32]}.")  # names have 255 bytes at most
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(name, _mode(path))
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def _mode(path: Path) -> int:
    """The permissions that a file has, or would have if it were opened."""
    if path.exists():
        return stat.S_IMODE(path.stat().st_mode)
    umask = os.umask(0)
    os.umask(umask)
    return 0o666 & ~umask


def _write_in_place(path: Path, text: str) -> None:
    """What is a stream by another name (``/dev/stdout``) goes on where it is; anything else is written anew."""
    system = path.absolute().parts[1:2] in (("dev",), ("proc",))
    with path.open("a" if system else "w", encoding="utf-8") as file:
        file.write(text)
