# SPDX-License-Identifier: Apache-2.0
"""``torch-fl new``: a project for a chip, written from templates."""

from __future__ import annotations

import shutil
from pathlib import Path

from torch_fl.cli.errors import CommandError
from torch_fl.cli.naming import Names

TEMPLATES = Path(__file__).parent / "templates"
# Folders of templates; of files with one name the later wins.
LAYERS = {
    "yaml": ("common", "library", "yaml"),
    "c": ("common", "library", "c"),
    "compiler": ("common", "library", "c", "compiler"),
    "python": ("common", "python"),
}
_SUFFIX = ".jinja"


def create(names: Names, kind: str, folder: Path) -> list[Path]:
    """Write the project and return its files. The folder must not exist; if writing fails, it is taken away again."""
    texts = render(names, kind)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
    except FileExistsError:
        raise CommandError(f"{folder} exists already; nothing was written. Choose another --path") from None
    except OSError as error:
        raise CommandError(f"{folder} cannot be made: {error.strerror}") from None
    try:
        for name, text in texts.items():
            file = folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)
        raise CommandError(f"{error.filename or folder} cannot be written: {error.strerror}") from None
    return [folder / name for name in texts]


def render(names: Names, kind: str) -> dict[str, str]:
    """Return the project's files: path within the project, text."""
    import jinja2

    files = {_target(file, names): file for layer in LAYERS[kind] for file in _files(TEMPLATES / layer)}
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(
        loader=loader,
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    values = {"chip": names.chip, "names": names, "kind": kind}
    return {
        target: environment.get_template(file.relative_to(TEMPLATES).as_posix()).render(values)
        for target, file in sorted(files.items())
    }


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*" + _SUFFIX))


def _target(file: Path, names: Names) -> str:
    """Where a template goes: NAME and PACKAGE are replaced, and a leading ``dot_`` is a dot."""
    layer = file.relative_to(TEMPLATES).parts[0]
    path = file.relative_to(TEMPLATES / layer).as_posix().removesuffix(_SUFFIX)
    path = path.replace("PACKAGE", names.package).replace("NAME", names.identifier)
    return path.replace("dot_", ".", 1) if path.startswith("dot_") else path
