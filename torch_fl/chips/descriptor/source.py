# SPDX-License-Identifier: Apache-2.0
"""The tree that a descriptor's text is read into: plain values that know where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch_fl.chips.descriptor.errors import Problem

Key = str | int
Scalar = str | int | float | bool | None
Path = Sequence[Key]


@dataclass
class Node:
    """A value and where it stands: file, line, column, and the keys that lead to it in that file."""

    file: str
    line: int
    column: int
    value: Scalar | list[Node] | dict[Key, Node]
    path: tuple[Key, ...] = ()
    key_line: int = 0  # of its key, for what is in a mapping
    key_column: int = 0

    @classmethod
    def of(cls, value: Any, file: str = "", path: tuple[Key, ...] = ()) -> Node:
        """Return the tree of a value that stands nowhere."""
        if isinstance(value, dict):
            return cls(file, 0, 0, {key: cls.of(item, file, (*path, key)) for key, item in value.items()}, path)
        if isinstance(value, list):
            return cls(file, 0, 0, [cls.of(item, file, (*path, i)) for i, item in enumerate(value)], path)
        return cls(file, 0, 0, value, path)

    def plain(self) -> Any:
        """Return the value without its places."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain() for node in self.value]
        return self.value

    def child(self, key: Key) -> Node | None:
        """Return the entry of a mapping, or the item of a list."""
        if isinstance(self.value, dict):
            return self.value.get(key)
        if isinstance(self.value, list) and isinstance(key, int) and 0 <= key < len(self.value):
            return self.value[key]
        return None

    def locate(self, path: Path) -> Node:
        """Follow a path as far as the text goes, and return where that ends.

        Steps that the text does not have are left out: they come from short forms, which were written out.
        """
        node = self
        for step in path:
            node = node.child(step) or node
        return node

    def problem(
        self,
        path: Path,
        expected: str,
        found: str = "",
        *,
        suggestion: str = "",
        fix: str = "",
        at_key: bool = False,
        severity: Literal["error", "warning"] = "error",
    ) -> Problem:
        """Return a problem with what stands at ``path``, or with its key."""
        node = self.locate(path)
        line, column = (node.key_line, node.key_column) if at_key and node.key_line else (node.line, node.column)
        return Problem(node.file, line, column, key_path(node.path), expected, found, suggestion, fix, severity)


def key_path(path: Path) -> str:
    """Return ``supported_ops[2].constraints.ndim``."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text


def shown(value: object, limit: int = 60) -> str:
    """Return a value as an error shows it: on one line, and short."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return f"a mapping with {', '.join(shown(key) for key in list(value)[:4])}" if value else "an empty mapping"
    if isinstance(value, list):
        return f"a list of {len(value)}" if value else "an empty list"
    text = repr(value) if len(str(value)) <= limit else repr(str(value)[: limit - 3]) + "..."
    return text if isinstance(value, str) else f"the number {text}"
