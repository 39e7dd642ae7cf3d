# SPDX-License-Identifier: Apache-2.0
"""Settings from a file: ``TORCH_FL_CONFIG``, else ``$XDG_CONFIG_HOME/torch-fl/config.yaml``.

YAML, since Python 3.10 cannot read TOML by itself. Read only where there is one.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch_fl.configuration.table import Setting
from torch_fl.routing.errors import ConfigError

VARIABLE = "TORCH_FL_CONFIG"
FOR_ALL = "default"  # within a mapping of operators: the value of all others


def path() -> Path | None:
    """Return the file, or None if there is none; refuse a variable that names none."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        if not given.strip():
            return None
        file = Path(given).expanduser()
        if not file.is_file():
            raise ConfigError(f"{VARIABLE}={given}: no such file")
        return file
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    file = Path(base) / "torch-fl" / "config.yaml"
    return file if file.is_file() else None


def read() -> dict[str, tuple[Any, str]]:
    """Return full key, value and source ("config.yaml:3") of everything that the file sets."""
    file = path()
    return {} if file is None else _Reader(file).read()


class _Reader:
    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: dict[str, tuple[Any, str]] = {}

    def read(self) -> dict[str, tuple[Any, str]]:
        import yaml

        try:
            text = self.file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{self.file}: cannot be read: {error}") from None
        self.loader = yaml.SafeLoader(text)
        try:
            root = self.loader.get_single_node()
            if root is not None and root.tag != "tag:yaml.org,2002:null":
                self._entries(root)
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            line = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
            raise ConfigError(f"{self.file}{line}: {getattr(error, 'problem', None) or error}") from None
        finally:
            self.loader.dispose()
        return self.found

    def _where(self, node: Any) -> str:
        return f"{self.file}:{node.start_mark.line + 1}"

    def _entries(self, root: Any) -> None:
        if root.id != "mapping":
            raise ConfigError(f"{self._where(root)}: expected lines of the form `setting: value`, found a {root.id}")
        for key, node in root.value:
            try:
                self._entry(self.loader.construct_object(key, deep=True), node)
            except ConfigError as error:
                text = str(error)
                raise ConfigError(text if text.startswith(str(self.file)) else f"{self._where(key)}: {text}") from None

    def _entry(self, key: Any, node: Any) -> None:
        from torch_fl.configuration import settings

        setting, op = settings.split(key)
        if setting.for_operators and not op and node.id == "mapping":
            for name, value in node.value:
                self._operator(setting, self.loader.construct_object(name, deep=True), value)
            return
        self._keep(setting, op, node)

    def _operator(self, setting: Setting, name: Any, node: Any) -> None:
        try:
            self._keep(setting, "" if name == FOR_ALL else name or " ", node)
        except ConfigError as error:
            text = str(error)
            raise ConfigError(text if text.startswith(str(self.file)) else f"{self._where(node)}: {text}") from None

    def _keep(self, setting: Setting, op: str, node: Any) -> None:
        from torch_fl.configuration import settings

        value = self.loader.construct_object(node, deep=True)
        for full, checked in settings.checked(setting, op, value, setting.key).items():
            if full in self.found:
                raise ConfigError(f"{full} is set twice, first at {self.found[full][1]}")
            if checked is not None:
                self.found[full] = checked, self._where(node)
