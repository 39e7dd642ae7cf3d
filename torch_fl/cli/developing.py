# SPDX-License-Identifier: Apache-2.0
"""Chips that are being written: built in their project, not installed."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from torch_fl.cli import build
from torch_fl.cli.errors import CommandError

VARIABLE = "TORCH_FL_ADD_PLUGIN_PATH"
REGISTER = "TORCH_FL_DEVELOPED_BACKEND"  # "package:function", for the conformance kit's own processes


def prepare(words: list[str]) -> list[str]:
    """Take ``--path DIR`` out of the words, and have Torch-FL find the chip of the project that they mean.

    A chip's name means the project of that chip in or below the current folder, too, and a folder the chip of its
    project.
    """
    words, path = _without_path(words)
    name = next((word for word in words if not word.startswith("-")), None)
    if path is None and name is not None and os.sep in name and Path(name).is_dir():
        path = Path(name)
    project = _of_name(name) if path is None else build.find(path)
    if project is not None:
        if name is not None and Path(name).is_dir() and name != project.chip:
            words[words.index(name)] = project.chip
        make_known(project)
    return words


def _of_name(chip: str | None) -> build.Project | None:
    return next((project for project in build.projects_below(Path.cwd()) if project.chip == chip), None)


def make_known(project: build.Project) -> None:
    """Have Torch-FL find the project's chip in this process, and in those of the conformance kit."""
    if project.function:
        folder = str(project.folder.resolve())
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        os.environ[REGISTER] = f"{project.package}:{project.function}"
        sys.path.insert(0, folder)
        register()
    elif project.plugins():
        look_into(project.package_folder)
    else:
        raise CommandError(f"{project.folder} has not been built: torch-fl build {project.folder}")


def register() -> None:
    """Register the Python class that the environment names, if it names one."""
    package, _, function = os.environ.get(REGISTER, "").partition(":")
    if package:
        getattr(importlib.import_module(package), function)()


def look_into(folder: Path) -> None:
    """Put a folder in front of where plugins are looked for."""
    before = os.environ.get(VARIABLE, "")
    os.environ[VARIABLE] = str(folder.resolve()) + (os.pathsep + before if before else "")


def _without_path(words: list[str]) -> tuple[list[str], Path | None]:
    rest, path = [], None
    waiting = iter(words)
    for word in waiting:
        if word == "--path":
            value = next(waiting, None)
            if value is None:
                raise CommandError("--path needs a folder", status=2)
            path = Path(value)
        elif word.startswith("--path="):
            path = Path(word.removeprefix("--path="))
        else:
            rest.append(word)
    return rest, path
