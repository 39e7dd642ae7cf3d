# SPDX-License-Identifier: Apache-2.0
"""``torch-fl build``: compiles a plugin project, and finds such projects."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from torch_fl._exits import ended
from torch_fl.cli.errors import CommandError

GROUP = "torch_fl.plugins"
_ENTRY = re.compile(
    rf"""^\[project\.entry-points\.["']?{re.escape(GROUP)}["']?\]\s*\n(?:\s*\#.*\n)*"""
    r"""\s*(?P<chip>[\w.-]+)\s*=\s*["'](?P<package>[\w.]+)(?::(?P<function>\w+))?""",
    re.M,
)


@dataclass(frozen=True)
class Project:
    """A folder whose pyproject.toml declares a plugin."""

    folder: Path
    chip: str
    package: str
    function: str = ""  # of the package, which makes the chip known; empty: the package's folder holds a plugin

    @property
    def package_folder(self) -> Path:
        """Where the plugin lies once it is built."""
        return self.folder / self.package.replace(".", "/")

    def plugins(self) -> list[Path]:
        """Return what can be loaded from the project."""
        return sorted([*self.package_folder.glob("libfl_*.so"), *self.package_folder.glob("*.fl.yaml")])


def read(folder: Path) -> Project | None:
    """Return the project in a folder, or None."""
    try:
        text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    match = _ENTRY.search(text)
    return None if match is None else Project(folder, match["chip"], match["package"], match["function"] or "")


def projects_below(folder: Path) -> list[Project]:
    """Return the project in this folder or else those in its direct subfolders."""
    here = read(folder)
    if here is not None:
        return [here]
    try:
        inside = sorted(path for path in folder.iterdir() if (path / "pyproject.toml").is_file())
    except OSError as error:
        raise CommandError(f"{folder}: {error.strerror}") from None
    return [project for project in map(read, inside) if project is not None]


def find(folder: Path | None) -> Project:
    """Return the project to build: of this folder, else of the current one, else the only one in it."""
    start = folder or Path.cwd()
    found = projects_below(start)
    if len(found) == 1:
        return found[0]
    if not found:
        expected = f'a pyproject.toml with [project.entry-points."{GROUP}"]'
        raise CommandError(f"{start} holds no plugin project: expected {expected}. `torch-fl new NAME` writes one")
    names = ", ".join(str(project.folder) for project in found)
    raise CommandError(f"{start} holds several plugin projects; say which: {names}")


def build(project: Project) -> list[Path]:
    """Compile the project; return what can be loaded."""
    if (project.folder / "CMakeLists.txt").exists() and shutil.which("cmake"):
        _with_cmake(project)
    elif sources := _sources(project.folder):
        _with_compiler(project, sources)
    plugins = project.plugins()
    if not plugins and not project.function:
        raise CommandError(f"the build left no libfl_*.so and no descriptor in {project.package_folder}")
    return plugins


def _with_cmake(project: Project) -> None:
    folder, build_folder = str(project.folder), str(project.folder / "build" / "cmake")
    include = f"-DTORCH_FL_INCLUDE={include_folder()}"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    _run(["cmake", "-S", folder, "-B", build_folder, *generator, include, f"-DPython_EXECUTABLE={sys.executable}"])
    _run(["cmake", "--build", build_folder, "--parallel", "2"])
    _run(["cmake", "--install", build_folder, "--prefix", folder])


def _sources(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "src").glob("*") if path.suffix in (".c", ".cc", ".cpp"))


def _with_compiler(project: Project, sources: list[Path]) -> None:
    """Compile and link in one go, without CMake."""
    cxx = any(path.suffix != ".c" for path in sources)
    described = any(project.package_folder.glob("*.fl.yaml"))  # then the library is the vendor's, not a plugin
    name = project.chip.replace("-", "_")
    target = project.package_folder / (f"lib{name}.so" if described else f"libfl_{name}.so")
    standard = "-std=c++20" if cxx else "-std=gnu99"
    flags = [standard, "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-fvisibility=hidden", f"-I{include_folder()}"]
    if described:
        flags.remove("-fvisibility=hidden")
    target.parent.mkdir(parents=True, exist_ok=True)
    _run([*compiler(cxx), *flags, *map(str, sources), "-ldl", "-o", str(target)])


def compiler(cxx: bool = False) -> list[str]:
    """Return the system's compiler as words of a command: $CC or $CXX, else the first that is found."""
    variable, names = ("CXX", ("c++", "g++", "clang++")) if cxx else ("CC", ("cc", "gcc", "clang"))
    words = os.environ.get(variable, "").split()
    for name in words[:1] or names:
        if shutil.which(name):
            return words or [name]
    looked_for = f"{variable}={words[0]}" if words else ", ".join(names)
    raise CommandError(f"no compiler: {looked_for} not found on the PATH. Install gcc or clang, or set {variable}")


def _run(command: list[str]) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        output = (result.stdout + result.stderr).strip()
        raise CommandError(f"{' '.join(command)}\nended with {ended(result.returncode)}:\n{output}")


def include_folder() -> Path:
    """Return the folder that holds torch_fl/fl_plugin.h: the wheel's, or that of a checkout."""
    import torch_fl

    package = Path(torch_fl.__file__).resolve().parent
    for folder in (package / "include", package.parent / "include"):
        if (folder / "torch_fl" / "fl_plugin.h").exists():
            return folder
    raise CommandError(f"torch_fl/fl_plugin.h is not in {package / 'include'}: the installation is incomplete")
