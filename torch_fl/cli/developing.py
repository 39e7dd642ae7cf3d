# SPDX-License-Identifier: Apache-2.0
"""Chips that are being written: built in their project, not installed."""

from __future__ import annotations

import os
from pathlib import Path

from torch_fl.cli import build
from torch_fl.cli.errors import CommandError

VARIABLE = "TORCH_FL_ADD_PLUGIN_PATH"


def prepare(words: list[str]) -> list[str]:
    """Take ``--path DIR`` out of the words, and have Torch-FL look into the project that they mean.

    A chip's name means the project of that chip in or below the current folder too; a folder means its project's chip.
    """
    words, path = _without_path(words)
    name = next((word for word in words if not word.startswith("-")), None)
    if path is None and name is not None and os.sep in name and Path(name).is_dir():
        path = Path(name)
    if path is not None:
        project = build.find(path)
        if name is not None and Path(name).is_dir() and name != project.chip:
            words[words.index(name)] = project.chip
    else:
        project_or_none = next((p for p in build.projects_below(Path.cwd()) if p.chip == name), None)
        if project_or_none is None:
            return words
        project = project_or_none
    if not any(project.package_folder.glob("libfl_*.so")) and not project.plugins():
        raise CommandError(f"{project.folder} has not been built: torch-fl build {project.folder}")
    look_into(project.package_folder)
    return words


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
