# SPDX-License-Identifier: Apache-2.0
"""The tree that a descriptor's text is read into: plain values that know where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from torch_fl.chips.descriptor.errors import Problem

Key = str | int
Scalar = str | int | float | bool | None
Path = Sequence[Key]


@dataclass
class Node:
    """A value, and where it stands. A mapping's entry also knows where its key stands."""

    file: str
    line: int
    column: int
    value: Scalar | list[Node] | dict[Key, Node]
    key: Node | None = field(default=None, repr=False)

    @classmethod
    def of(cls, value: Any, file: str = "") -> Node:
        """Return the tree of a value that stands nowhere."""
        if isinstance(value, dict):
            return cls(file, 0, 0, {key: cls.of(item, file) for key, item in value.items()})
        return cls(file, 0, 0, [cls.of(item, file) for item in value] if isinstance(value, list) else value)

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

    def locate(self, path: Path) -> tuple[Node, list[Key]]:
        """Follow a path as far as the text goes; return where that ends, and the steps taken.

        Steps that the text does not have are left out: they come from short forms, which were written out.
        """
        node, taken = self, list[Key]()
        for step in path:
            following = node.child(step)
            if following is not None:
                node = following
                taken.append(step)
        return node, taken

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
        node, taken = self.locate(path)
        place = node.key if at_key and node.key is not None else node
        key = key_path(taken)
        return Problem(place.file, place.line, place.column, key, expected, found, suggestion, fix, severity)


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
