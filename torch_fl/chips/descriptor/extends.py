# SPDX-License-Identifier: Apache-2.0
"""Descriptors that start from others, and the paths that a descriptor may name."""

from __future__ import annotations

import os
import re
from dataclasses import replace

from torch_fl.chips import trust
from torch_fl.chips.descriptor.errors import DescriptorError, Problem
from torch_fl.chips.descriptor.reader import read
from torch_fl.chips.descriptor.source import Key, Node, key_path, shown

MAX_CHAIN = 8
MAX_FILES = 32

_VARIABLE = re.compile(
    r"\$(?:(?P<plain>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)(?::-(?P<default>[^{}$]*))?\})", re.ASCII
)


def read_merged(path: str) -> Node:
    """Return the tree of a descriptor and of those that it extends."""
    return _Chain().read(os.path.abspath(path), None)


class _Chain:
    """The files that are being read, each because of the one before."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._count = 0

    def read(self, path: str, named_by: Node | None) -> Node:
        self._refuse_cycle(path, named_by)
        self._open.append(os.path.realpath(path))
        self._count += 1
        try:
            tree = read(path)
        except DescriptorError as error:
            if named_by is not None and not any(problem.line for problem in error.problems):
                raise DescriptorError([_here(named_by, problem) for problem in error.problems]) from None
            raise
        merged = self._with_bases(tree)
        self._open.pop()
        return merged

    def _refuse_cycle(self, path: str, named_by: Node | None) -> None:
        if named_by is None:
            return
        real = os.path.realpath(path)
        if real in self._open:
            chain = " -> ".join([*self._open[self._open.index(real) :], real])
            fix = "A descriptor cannot start from itself"
            raise DescriptorError([_problem(named_by, "a chain of extends that ends", chain, fix)])
        if len(self._open) >= MAX_CHAIN:
            chain = " -> ".join(os.path.basename(name) for name in [*self._open, path])
            raise DescriptorError([_problem(named_by, f"a chain of at most {MAX_CHAIN} descriptors", chain)])
        if self._count >= MAX_FILES:
            raise DescriptorError([_problem(named_by, f"at most {MAX_FILES} descriptors", "more")])

    def _with_bases(self, tree: Node) -> Node:
        if not isinstance(tree.value, dict) or "extends" not in tree.value:
            return tree
        merged: Node | None = None
        for entry in _entries(tree.value["extends"]):
            base = self.read(resolved(entry), entry)
            merged = base if merged is None else merge(merged, base)
        own = {key: node for key, node in tree.value.items() if key != "extends"}
        tree = replace(tree, value=own)
        return tree if merged is None else merge(merged, tree)


def _entries(extends: Node) -> list[Node]:
    entries = extends.value if isinstance(extends.value, list) else [extends]
    wrong = [_problem(node, "the path of a descriptor", shown(node.plain())) for node in entries if not _is_path(node)]
    if wrong:
        raise DescriptorError(wrong)
    return entries


def _is_path(node: Node) -> bool:
    return isinstance(node.value, str) and bool(node.value.strip())


def _problem(node: Node, expected: str, found: str, fix: str = "", suggestion: str = "") -> Problem:
    return Problem(node.file, node.line, node.column, key_path(node.path), expected, found, suggestion, fix)


def _here(node: Node, problem: Problem) -> Problem:
    """Return what is wrong with a file as a whole as a mistake of the entry that names it."""
    return _problem(node, problem.expected, f"{problem.found} ({problem.file})", problem.fix)


def merge(base: Node, own: Node, path: tuple[Key, ...] = ()) -> Node:
    """Return ``own`` on top of ``base``: mappings merge, ``supported_ops`` by name, all else is replaced."""
    if isinstance(base.value, dict) and isinstance(own.value, dict) and path[-1:] != ("override",):
        entries = dict(base.value)
        for key, node in own.value.items():
            before = entries.get(key)
            entries[key] = node if before is None else merge(before, node, (*path, key))
        return replace(own, value=entries)
    if path == ("supported_ops",) and isinstance(base.value, list) and isinstance(own.value, list):
        return replace(own, value=_merged_ops(base.value, own.value))
    return own


def _merged_ops(base: list[Node], own: list[Node]) -> list[Node]:
    """Return the operators of both, those of one name merged. Duplicates in one list stay, to be refused."""
    merged = list(base)
    places = {name: i for i, node in enumerate(base) if (name := op_name(node)) is not None}
    for node in own:
        place = places.pop(op_name(node) or "", None)
        if place is None:
            merged.append(node)
        else:
            merged[place] = merge(merged[place], node, ("op",))
    return merged


def op_name(node: Node) -> str | None:
    """Return the name of an entry of ``supported_ops``, or None."""
    name = node.child("name")
    return name.value if name is not None and isinstance(name.value, str) else None


def expanded(node: Node) -> str:
    """Return a path with its variables replaced by their values, once: what they hold is not looked at again."""
    text = str(node.value)

    def value(match: re.Match[str]) -> str:
        name = match["plain"] or match["braced"]
        found = os.environ.get(name) or match["default"]
        if found is None:
            fix = f"Set {name}, or write ${{{name}:-default}}"
            raise DescriptorError(
                [_problem(node, f"the environment variable {name}", "none of that name, or an empty one", fix)]
            )
        return found

    stray = _VARIABLE.sub("", text)
    if "$" in stray:
        expected = "$NAME, ${NAME} or ${NAME:-default}"
        raise DescriptorError([_problem(node, expected, shown(text), "A path cannot hold a $ of its own")])
    return _VARIABLE.sub(value, text)


def resolved(node: Node) -> str:
    """Return the absolute path that a node names, relative to its file; refuse one that leaves that folder.

    An absolute path may lie anywhere, since it says where.
    """
    text = expanded(node)
    folder = os.path.dirname(node.file)
    path = os.path.join(folder, text)
    if trust.unsafe_allowed():
        return os.path.normpath(path)
    expected = f"a path inside {folder or '.'}, or an absolute one without .."
    if ".." in re.split(r"/+", text) and (os.path.isabs(text) or not _stays(text)):
        raise DescriptorError([_problem(node, expected, shown(text), trust.HOW_TO_STAY)])
    if not os.path.isabs(text):
        reason = trust.leaves(folder, path)
        if reason:
            raise DescriptorError([_problem(node, expected, reason, trust.HOW_TO_STAY)])
    return os.path.normpath(path)


def _stays(text: str) -> bool:
    return os.path.normpath(text).split(os.sep)[0] != ".."


def library(node: Node) -> str:
    """Return what ``runtime_so`` names: a path, or a bare name for the dynamic linker if no such file lies there."""
    text = expanded(node)
    beside = os.path.join(os.path.dirname(node.file), text)
    if "/" not in text and not os.path.lexists(beside):
        return text
    path = resolved(node)
    if os.path.exists(path):
        reason = trust.why_not_file(path)
        if reason:
            raise DescriptorError([_problem(node, "a library that nobody else can change", reason, trust.HOW_TO_ALLOW)])
    return path
