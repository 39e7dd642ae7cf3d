# SPDX-License-Identifier: Apache-2.0
"""Reads a descriptor: text, ``extends``, variables, schema. Loads no library and needs no device."""

from __future__ import annotations

import os
from collections.abc import Callable

from pydantic import ValidationError

from torch_fl.chips.descriptor import extends, translate
from torch_fl.chips.descriptor.errors import DescriptorError, Problem
from torch_fl.chips.descriptor.models import Descriptor
from torch_fl.chips.descriptor.source import Node

SUFFIXES = (".fl.yaml", ".fl.yml", ".yaml", ".yml")


def load(path: str | os.PathLike[str]) -> Descriptor:
    """Return the descriptor that a file holds; raise DescriptorError, which names every mistake and its place.

    In the result every short form is written out, and ``runtime_so`` is an absolute path, or a bare name.
    """
    file = os.path.abspath(os.fsdecode(path))
    if "\0" in file:
        raise DescriptorError([Problem(repr(file), 0, 0, "", "a path", "one with a NUL character")])
    tree = extends.read_merged(file)
    problems = _replace_paths(tree) + _twice(tree)
    data = tree.plain()
    if isinstance(data, dict):
        data.setdefault("name", default_name(file))
    try:
        descriptor = Descriptor.model_validate(data)
    except ValidationError as error:
        raise DescriptorError(_sorted(problems + translate.problems(error, tree))) from None
    if problems:
        raise DescriptorError(_sorted(problems))
    descriptor._file, descriptor._source = file, tree
    return descriptor


def default_name(file: str) -> str:
    """Return the chip's name where the descriptor gives none."""
    name = os.path.basename(file)
    suffix = next((suffix for suffix in SUFFIXES if name.endswith(suffix)), "")
    return name.removesuffix(suffix)


def _sorted(problems: list[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.file, problem.line, problem.column))


def _replace_paths(tree: Node) -> list[Problem]:
    """Replace the variables in paths, and relative paths by absolute ones."""
    problems: list[Problem] = []
    replacing: dict[str, Callable[[Node], str]] = {"runtime_so": extends.library, "runtime_header": extends.expanded}
    for key, function in replacing.items():
        node = tree.child(key)
        if node is None or not isinstance(node.value, str):
            continue
        try:
            node.value = function(node)
        except DescriptorError as error:
            problems += error.problems
    return problems


def _twice(tree: Node) -> list[Problem]:
    """Return the operators that stand in supported_ops again."""
    ops = tree.child("supported_ops")
    first: dict[str, Node] = {}
    problems: list[Problem] = []
    for node in ops.value if ops is not None and isinstance(ops.value, list) else ():
        name = node.child("name")
        if name is None or not isinstance(name.value, str):
            continue
        before = first.setdefault(name.value, name)
        if before is not name:
            found = f"{name.value} again; it stands in line {before.line} already"
            problems.append(name.problem((), "every operator once", found, fix="Merge the two entries"))
    return problems
