# SPDX-License-Identifier: Apache-2.0
"""``torch-fl doctor``: what is installed, what was found, and what is wrong with it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch_fl._words import counted
from torch_fl.cli import output
from torch_fl.cli.errors import CommandError

GOOD, NOTE, BAD = "ok", "note", "problem"
_OF_OTHERS = ("TORCH_DEVICE_BACKEND_AUTOLOAD", "OCL_ICD_VENDORS", "LD_LIBRARY_PATH", "LD_PRELOAD", "CC", "CXX")


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    section: str
    state: str
    text: str
    advice: str = ""


def main(json: bool) -> int:
    """Print the report; return the exit status."""
    findings = [finding for section in SECTIONS for finding in _guarded(section)]
    problems = [finding for finding in findings if finding.state == BAD]
    if json:
        output.print_json({"healthy": not problems, "findings": [asdict(finding) for finding in findings]})
        return int(bool(problems))
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            print(f"\n{section}" if finding is not findings[0] else section)
        mark = {GOOD: " ", NOTE: "-", BAD: "!"}[finding.state]
        print(f" {mark} {finding.text}" + (f"\n     {finding.advice}" if finding.advice else ""))
    print("\n" + ("nothing is wrong" if not problems else f"{len(problems)} problem(s), marked with !"))
    return int(bool(problems))


def _guarded(section: Callable[[], Iterator[Finding]]) -> list[Finding]:
    """A part of the report that fails is a finding."""
    try:
        return list(section())
    except Exception as error:
        name = section.__name__.strip("_").replace("_", " ")
        return [Finding(name, BAD, f"this could not be looked at: {type(error).__name__}: {error}")]


def _versions() -> Iterator[Finding]:
    import torch

    from torch_fl import __version__, _load

    section = "versions"
    yield Finding(section, GOOD, f"Python {platform.python_version()}, {sys.executable}")
    yield Finding(section, GOOD, f"{platform.system()} {platform.release()}, {platform.machine()}")
    yield Finding(section, GOOD, f"torch {torch.__version__}, {Path(torch.__file__).parent}")
    yield Finding(section, GOOD, f"torch-fl {__version__}, {Path(_load.__file__).parent}")
    try:
        _load.initialize()
    except Exception as error:
        yield Finding(section, BAD, f"torch-fl is inactive: {error}")


def _devices() -> Iterator[Finding]:
    import torch_fl
    from torch_fl import _load

    if _load.failure() is not None:
        return
    rows = torch_fl.list_devices()
    for row in rows:
        text = f"{row.device}  {row.chip}: {row.name} ({row.vendor}), {row.memory / 2**20:,.0f} MiB"
        yield Finding("devices", GOOD, f"{text}, driver {row.driver_version or 'unknown'}")
    if not rows:
        advice = "install the package of a chip, or name a plugin in TORCH_FL_PLUGIN_PATH"
        yield Finding("devices", BAD, "there is none", advice)


def _plugins() -> Iterator[Finding]:
    import torch_fl
    from torch_fl import _load

    if _load.failure() is not None:
        return
    for row in torch_fl.list_plugins():
        if row.loaded:
            yield Finding("plugins", NOTE if row.reason else GOOD, str(row))
        else:
            yield Finding("plugins", BAD if _asked_for(row.source) else NOTE, str(row))


def _asked_for(source: str) -> bool:
    """Somebody named this plugin or installed it, so that it should load; those that ship may lack their chip."""
    return source != "built-in"


def _compiler() -> Iterator[Finding]:
    from torch_fl.cli import build

    try:
        command = build.compiler()
    except CommandError as error:
        advice = "only building plugins, and chips that compile C source at run time, need one"
        yield Finding("compiler", NOTE, str(error), advice)
        return
    result = subprocess.run([*command, "--version"], capture_output=True, text=True, timeout=20, check=False)
    first = (result.stdout or result.stderr).splitlines()[:1]
    yield Finding("compiler", GOOD if result.returncode == 0 else BAD, f"{' '.join(command)}: {''.join(first)}")


def _environment() -> Iterator[Finding]:
    from torch_fl.configuration import environment

    unknown = dict(environment.unknown())
    for name in sorted(os.environ):
        if name in unknown:
            close = " or ".join(unknown[name])
            yield Finding("environment", BAD, f"{name}: torch-fl knows no such variable", _did_mean(close))
        elif name.startswith(("TORCH_FL_", "TORCHFL_")) or name in _OF_OTHERS:
            yield _variable(name, os.environ[name])


def _did_mean(close: str) -> str:
    return f"did you mean {close}?" if close else "docs/configuration.md lists those that there are"


def _variable(name: str, value: str) -> Finding:
    from torch_fl.configuration import environment
    from torch_fl.configuration.table import SETTINGS

    text = f"{name}={value}"
    for setting in SETTINGS.values():
        if name in (setting.variable, *setting.aliases):
            try:
                environment.parse(setting, value, name)
            except Exception as error:
                return Finding("environment", BAD, text, str(error))
    if name in ("TORCH_FL_PLUGIN_PATH", "TORCH_FL_ADD_PLUGIN_PATH", "TORCHFL_DEVICE_DIR"):
        gone = [entry for entry in value.split(os.pathsep) if entry and not Path(entry).expanduser().exists()]
        if gone:
            return Finding("environment", BAD, text, f"no such file or folder: {', '.join(gone)}")
    if name == "TORCH_DEVICE_BACKEND_AUTOLOAD" and value == "0":
        return Finding("environment", NOTE, text, "`import torch` does not load torch-fl; `import torch_fl` does")
    return Finding("environment", GOOD, text)


def _settings() -> Iterator[Finding]:
    import torch_fl
    from torch_fl.configuration import file

    try:
        path = file.path()
        if path is not None:
            file.read()
        yield Finding("settings", GOOD, f"configuration file: {path or 'none'}")
    except Exception as error:
        yield Finding("settings", BAD, str(error))
    sources = torch_fl.config_sources()
    for key, value in torch_fl.get_config().items():
        if sources[key] != "default":
            yield Finding("settings", GOOD, f"{key} = {value}  [{sources[key]}]")


def _cache() -> Iterator[Finding]:
    folder = cache_folder()
    if folder is None:
        yield Finding(
            "cache", NOTE, "none: compiled kernels are not kept", "TORCH_FL_CACHE_DIR names a folder for them"
        )
        return
    if not folder.exists():
        yield _writable(next(parent for parent in folder.parents if parent.exists()), f"{folder}: not made yet")
        return
    files = [path for path in folder.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    yield _writable(folder, f"{folder}: {counted(len(files), 'file')}, {size / 2**20:.1f} MiB")


def _writable(folder: Path, text: str) -> Finding:
    if folder.is_dir() and os.access(folder, os.W_OK | os.X_OK):
        return Finding("cache", GOOD, text)
    return Finding("cache", BAD, text, f"{folder} cannot be written: every process compiles its kernels anew")


def cache_folder() -> Path | None:
    """Return the folder of compiled kernels, or None if they are not kept."""
    own = os.environ.get("TORCH_FL_CACHE_DIR")
    if own is not None:
        return Path(own) if own else None
    base = os.environ.get("XDG_CACHE_HOME") or (os.environ["HOME"] + "/.cache" if os.environ.get("HOME") else "")
    return Path(base) / "torch-fl" if base else None


SECTIONS = (_versions, _devices, _plugins, _compiler, _environment, _settings, _cache)
