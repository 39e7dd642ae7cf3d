# SPDX-License-Identifier: Apache-2.0
"""Where plugins are looked for. The order decides the numbering of the devices.

1. ``TORCH_FL_PLUGIN_PATH``: if set, it replaces everything below except 2.
2. ``TORCH_FL_ADD_PLUGIN_PATH``, then its alias ``TORCHFL_DEVICE_DIR``.
3. installed packages, through the entry point group ``torch_fl.plugins``.
4. ``$XDG_CONFIG_HOME/torch-fl/plugins`` (``~/.config/torch-fl/plugins``), then ``/opt/flagos/fl-plugins``.
5. the chips that ship with torch_fl.

A path may be a file, taken whatever its name, or a folder, of which the files ``*.fl.yaml`` (descriptors) and
``libfl_*.so`` (plugins) are taken and those in its direct subfolders; descriptors come first, since one may speak for
a plugin beside it. Several paths are separated as in PATH. Files that others could change are refused (trust.py).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

from torch_fl.chips import trust

Candidate = tuple[str, str]  # path, source
Refusal = tuple[str, str, str]  # path, source, reason

REPLACING = "TORCH_FL_PLUGIN_PATH"
ADDING = ("TORCH_FL_ADD_PLUGIN_PATH", "TORCHFL_DEVICE_DIR")
ENTRY_POINT_GROUP = "torch_fl.plugins"
SYSTEM_FOLDER = "/opt/flagos/fl-plugins"
PATTERNS = ("*.fl.yaml", "*.fl.yml", "libfl_*.so")
DESCRIPTORS = (".yaml", ".yml")

refused: list[Refusal] = []  # by the last call of candidates()


def is_descriptor(path: str) -> bool:
    """Tell a descriptor from a plugin, by its name."""
    return path.endswith(DESCRIPTORS)


def candidates() -> list[Candidate]:
    """Return (path, source) of every plugin and descriptor to try, in order, each file once; note what is refused."""
    refused.clear()
    return [candidate for candidate in _unique(_found()) if _is_trusted(*candidate)]


def _is_trusted(path: str, source: str) -> bool:
    reason = trust.why_not_file(path) if os.path.exists(path) else ""
    if reason:
        refused.append((path, source, f"{reason}. {trust.HOW_TO_ALLOW}"))
    return not reason


def _found() -> list[Candidate]:
    found: list[Candidate] = []
    if REPLACING in os.environ:
        found += _from_variable(REPLACING)
    for variable in ADDING:
        found += _from_variable(variable)
    if REPLACING not in os.environ:
        found += _from_packages()
        found += _from_folder(_user_folder(), "user configuration")
        found += _from_folder(Path(SYSTEM_FOLDER), SYSTEM_FOLDER)
        found += _from_folder(Path(__file__).parent, "built-in")
    return found


def _unique(found: list[Candidate]) -> list[Candidate]:
    first: dict[str, Candidate] = {}
    for path, source in found:
        first.setdefault(os.path.realpath(path), (path, source))
    return list(first.values())


def _user_folder() -> Path:
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "torch-fl" / "plugins"


def _from_variable(variable: str) -> Iterator[Candidate]:
    for entry in os.environ.get(variable, "").split(os.pathsep):
        if entry:
            yield from _from_path(Path(os.path.expanduser(entry)), variable)


def _from_path(path: Path, source: str) -> Iterator[Candidate]:
    """Yield what a path means. A folder without a plugin is reported; what does not exist is left to the loader."""
    if not path.is_dir():
        yield str(path), source
        return
    before = len(refused)
    inside = list(_from_folder(path, source))
    if not inside and len(refused) == before:
        refused.append((str(path), source, f"expected a folder with {' or '.join(PATTERNS)}, found none of these"))
    yield from inside


def _from_folder(folder: Path, source: str) -> Iterator[Candidate]:
    """Yield the descriptors and plugins in a folder and its direct subfolders, sorted by path."""
    try:
        files = [path for pattern in PATTERNS for path in (*folder.glob(pattern), *folder.glob(f"*/{pattern}"))]
    except OSError:  # an unreadable folder is as good as none
        return
    for file in sorted(files, key=lambda file: (not is_descriptor(file.name), file)):
        reason = trust.leaves(str(folder), str(file))
        if reason:
            refused.append((str(file), source, f"{reason}. {trust.HOW_TO_STAY}"))
        else:
            yield str(file), source


def _from_packages() -> Iterator[Candidate]:
    """Yield the plugins of installed packages.

    An entry point ``name = "package"`` means the plugins in that package's folder, found without importing it;
    ``name = "package:function"`` is called and returns one path or several.
    """
    for name, value in sorted(_entry_points()):
        source = f"entry point {name}"
        try:
            paths = _package_paths(value)
        except Exception as error:  # somebody else's code: a broken package must not stop the others
            yield f"{value} ({type(error).__name__}: {error})", source
            continue
        for path in paths:
            yield from _from_path(path, source)


def _package_paths(value: str) -> list[Path]:
    import importlib
    import importlib.util

    module, _, attribute = value.partition(":")
    if attribute:
        answer = getattr(importlib.import_module(module.strip()), attribute.strip())()
        return [Path(item) for item in ([answer] if isinstance(answer, str | os.PathLike) else answer)]
    spec = importlib.util.find_spec(module.strip())
    if spec is None:
        raise ModuleNotFoundError(f"no module named {module!r}")
    if spec.submodule_search_locations:
        return [Path(item) for item in spec.submodule_search_locations]
    return [Path(spec.origin or module).parent]


def _entry_points() -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the group's entry points.

    importlib.metadata parses every distribution's metadata; at start-up that is the largest single cost. Reading just
    the files that mention the group takes a tenth of it.
    """
    seen: set[str] = set()
    for folder in sys.path:
        try:
            names = [
                entry.name for entry in os.scandir(folder or ".") if entry.name.endswith((".dist-info", ".egg-info"))
            ]
        except OSError:
            continue
        for name in sorted(names):
            key = name.partition("-")[0].lower()
            if key not in seen:  # the first on sys.path wins, as for imports
                seen.add(key)
                yield from _parse_entry_points(os.path.join(folder or ".", name, "entry_points.txt"))


def _parse_entry_points(file: str) -> Iterator[tuple[str, str]]:
    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.read()
    except (OSError, UnicodeDecodeError):
        return
    section = ""
    for line in text.splitlines() if f"[{ENTRY_POINT_GROUP}]" in text else ():
        line = line.strip()
        if line.startswith("["):
            section = line.strip("[]").strip()
        elif section == ENTRY_POINT_GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            yield name.strip(), value.strip()
