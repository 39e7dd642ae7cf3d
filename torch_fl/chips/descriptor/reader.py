# SPDX-License-Identifier: Apache-2.0
"""Reads one file of YAML into a tree of nodes: bounded in every way, and nothing in it can make an object.

The language is what editors take YAML 1.2 for: true and false are booleans, yes and no are text. Anchors, aliases, tags
and several documents are refused.
"""

from __future__ import annotations

import math
import os
import re
import stat
from collections.abc import Iterator, Sized
from typing import Any

import yaml

from torch_fl.chips import trust
from torch_fl.chips.descriptor.errors import MAX_PROBLEMS, DescriptorError, Problem
from torch_fl.chips.descriptor.source import Key, Node, Scalar, key_path, shown

MAX_BYTES = 2**20
MAX_NODES = 20_000
MAX_ENTRIES = 4096  # of one mapping or list
MAX_DEPTH = 24
MAX_KEY = 200

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_UNPRINTABLE = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)|0x[0-9a-fA-F]+|0o[0-7]+", re.ASCII)
_REAL = re.compile(r"[-+]?(\.[0-9]+|[0-9]+\.[0-9]*)([eE][-+]?[0-9]+)?|[-+]?[0-9]+[eE][-+]?[0-9]+", re.ASCII)
_NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_HINTS = {
    "mapping values are not allowed": "Put text with ': ' in quotes, and check the indentation",
    "character '\\t'": "Indent with spaces",
    "that cannot start any token": "Indent with spaces; put text that starts with @, `, % or a tab in quotes",
    "could not find expected ':'": "Write key: value, with a space behind the colon",
    "did not find expected key": "Check the indentation, and that quotes and brackets are closed",
    "did not find expected '-' indicator": "Start every item of a list with '- ', at the same column",
}


def read(path: str) -> Node:
    """Return the tree of a file; raise DescriptorError for everything that is wrong with its text."""
    text = _decode(path, _bytes(path))
    composer = _Composer(path, text)
    tree = composer.tree()
    if composer.problems:
        raise DescriptorError(composer.problems)
    return tree


def _bytes(path: str) -> bytes:
    expected = "a YAML file"
    try:
        _refuse_special(path, os.stat(path))  # before opening, which may have effects on a device
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with open(descriptor, "rb") as stream:
            status = os.fstat(descriptor)
            _refuse_special(path, status)
            reason = trust.why_not_file(path, status)
            if reason:
                raise _whole(path, "a file that nobody else can change", reason, trust.HOW_TO_ALLOW)
            content = stream.read(MAX_BYTES + 1) or b""
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        if isinstance(error, DescriptorError):
            raise
        raise _whole(path, expected, getattr(error, "strerror", None) or str(error)) from None
    if len(content) > MAX_BYTES:
        raise _whole(path, f"a file of at most {MAX_BYTES >> 10} KiB", "a larger one", "Split it, and use extends")
    return content


def _refuse_special(path: str, status: os.stat_result) -> None:
    if stat.S_ISREG(status.st_mode):
        return
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    raise _whole(path, "a YAML file", kinds.get(stat.S_IFMT(status.st_mode), "a device"), "Name the file itself")


def _whole(path: str, expected: str, found: str, fix: str = "") -> DescriptorError:
    return DescriptorError([Problem(path, 0, 0, "", expected, found, fix=fix)])


def _decode(path: str, content: bytes) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", "replace")
        found = f"the byte 0x{content[error.start]:02x}"
        raise _at(path, before, "text in UTF-8", found, "Save the file as UTF-8") from None
    match = _UNPRINTABLE.search(text)
    if match is not None:
        found = f"the character U+{ord(match[0]):04X}"
        raise _at(path, text[: match.start()], "printable text", found, "Remove it")
    return text


def _at(path: str, before: str, expected: str, found: str, fix: str) -> DescriptorError:
    """Return an error at the end of ``before``."""
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    return DescriptorError([Problem(path, line, column, "", expected, found, fix=fix)])


class _Composer:
    """Makes nodes of the events that the YAML parser yields. Stops at the first breach of a bound."""

    def __init__(self, file: str, text: str):
        self.file = file
        self.problems: list[Problem] = []
        self._events = self._parsed(text)
        self._count = 0

    def _parsed(self, text: str) -> Iterator[Any]:
        try:
            yield from yaml.parse(text, Loader=_Loader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            said = " ".join(filter(None, (error.context, error.problem)))
            fix = next((hint for part, hint in _HINTS.items() if part in said), "")
            raise self._fatal(mark, "YAML", said.removeprefix("found "), fix) from None
        except (yaml.YAMLError, ValueError) as error:
            raise self._fatal(None, "YAML", str(error)[:200].replace("\n", " ")) from None

    def _problem(self, mark: Any, path: tuple[Key, ...], expected: str, found: str, fix: str = "") -> Problem:
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        return Problem(self.file, line, column, key_path(path), expected, found, fix=fix)

    def _fatal(self, mark: Any, expected: str, found: str, fix: str = "") -> DescriptorError:
        return DescriptorError([*self.problems, self._problem(mark, (), expected, found, fix)])

    def _note(self, mark: Any, path: tuple[Key, ...], expected: str, found: str, fix: str = "") -> None:
        self.problems.append(self._problem(mark, path, expected, found, fix))
        if len(self.problems) > MAX_PROBLEMS:
            raise self._fatal(mark, "fewer mistakes", f"{MAX_PROBLEMS} up to here")

    def tree(self) -> Node:
        root: Node | None = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    found = "a second one"
                    raise self._fatal(event.start_mark, "one document in a file", found, "Remove the line ---")
                root = self._node(next(self._events), (), 0)
        if root is None:
            raise self._fatal(None, "a mapping, such as runtime_so: libvendor.so", "nothing")
        if not isinstance(root.value, dict):
            found, fix = shown(root.plain()), "Write keys at the start of lines"
            self.problems.append(Problem(self.file, root.line, root.column, "", "a mapping", found, fix=fix))
        return root

    def _node(self, event: Any, path: tuple[Key, ...], depth: int) -> Node:
        self._count += 1
        mark = event.start_mark
        if self._count > MAX_NODES:
            raise self._fatal(
                mark, f"at most {MAX_NODES} keys and values in a file", "more", "Split it, and use extends"
            )
        if depth > MAX_DEPTH:
            raise self._fatal(mark, f"at most {MAX_DEPTH} levels of nesting", "more")
        self._refuse_extras(event, path)
        node = Node(self.file, mark.line + 1, mark.column + 1, None, path)
        if isinstance(event, yaml.MappingStartEvent):
            node.value = self._mapping(path, depth)
        elif isinstance(event, yaml.SequenceStartEvent):
            node.value = self._list(path, depth)
        else:
            node.value = self._scalar(event, path)
        return node

    def _refuse_extras(self, event: Any, path: tuple[Key, ...]) -> None:
        if isinstance(event, yaml.AliasEvent):
            raise self._fatal(
                event.start_mark, "values written out", f"the alias *{event.anchor[:MAX_KEY]}", _NO_ANCHORS
            )
        if event.anchor is not None:
            raise self._fatal(
                event.start_mark, "values written out", f"the anchor &{event.anchor[:MAX_KEY]}", _NO_ANCHORS
            )
        if event.tag is not None:
            found = f"the tag {event.tag[:MAX_KEY]}"
            self._note(event.start_mark, path, "a value without a tag", found, "Remove the tag")

    def _list(self, path: tuple[Key, ...], depth: int) -> list[Node]:
        items: list[Node] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            self._bound(event, items)
            items.append(self._node(event, (*path, len(items)), depth + 1))
        return items

    def _mapping(self, path: tuple[Key, ...], depth: int) -> dict[Key, Node]:
        entries: dict[Key, Node] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            mark = event.start_mark
            self._bound(event, entries)
            key = self._key(event, path, depth)
            node = self._node(next(self._events), (*path, key), depth + 1)
            node.key_line, node.key_column = mark.line + 1, mark.column + 1
            if key in entries:
                found = f"{shown(key)} again; it stands in line {entries[key].key_line} already"
                self._note(mark, (*path, key), "every key once", found, "Remove one of them")
            elif node.value is None:
                self._note(mark, (*path, key), f"a value behind {key}:", "nothing", "Give one, or remove the key")
            entries.setdefault(key, node)
        return entries

    def _bound(self, event: Any, collected: Sized) -> None:
        if len(collected) >= MAX_ENTRIES:
            raise self._fatal(event.start_mark, f"at most {MAX_ENTRIES} entries", "more", "Split it, and use extends")

    def _key(self, event: Any, path: tuple[Key, ...], depth: int) -> Key:
        node = self._node(event, path, depth + 1)
        key = node.value
        if isinstance(key, str) and len(key) <= MAX_KEY:
            return key
        if isinstance(key, int) and not isinstance(key, bool):
            return key
        expected = f"a key of at most {MAX_KEY} characters" if isinstance(key, str) else "a word as a key"
        self._note(event.start_mark, path, expected, shown(node.plain()), "Put it in quotes" if key is not None else "")
        return f"{shown(node.plain())} in line {node.line}"

    def _scalar(self, event: Any, path: tuple[Key, ...]) -> Scalar:
        text: str = event.value
        strange = _UNPRINTABLE.search(text)
        if strange is not None:  # escaped: "\0"
            self._note(event.start_mark, path, "printable text", f"the character U+{ord(strange[0]):04X}", "Remove it")
            return ""
        if not event.implicit[0]:  # in quotes, or a block of text
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _INTEGER.fullmatch(text):
            value = int(text, 0) if len(text) <= 24 else 2**64
            if not -(2**63) <= value < 2**63:
                self._note(event.start_mark, path, "a number of at most 64 bits", shown(text), "Put text in quotes")
                return 0
            return value
        if _REAL.fullmatch(text) or _NOT_FINITE.fullmatch(text):
            real = float(text) if _REAL.fullmatch(text) else math.inf
            if not math.isfinite(real):
                self._note(event.start_mark, path, "a finite number", shown(text), "Put text in quotes")
                return 0.0
            return real
        return text


_NO_ANCHORS = "Anchors and aliases are refused: write the value twice, or use extends; put text with & or * in quotes"
