# SPDX-License-Identifier: Apache-2.0
"""``torch-fl run``: the words of the command, read as Python reads its own."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from torch_fl.cli.errors import CommandError
from torch_fl.observe import running

TRACE = "torch-fl-trace.json"
_WITH_VALUE = ("--device", "--summary")


def marked(args: Iterable[str]) -> list[str]:
    """Put ``--`` where our options end because of ``-m MODULE``, and a file behind a bare ``--profile``."""
    words: list[str] = []
    rest = list(args)
    while rest:
        word = rest.pop(0)
        if word == "-m":
            return [*words, word, *rest[:1], "--", *rest[1:]]
        if word == "--" or not word.startswith("-") or word == "-":
            return [*words, word, *rest]
        words.append(f"--profile={TRACE}" if word == "--profile" else word)
        if word in _WITH_VALUE:
            words += rest[:1]
            rest = rest[1:]
    return words


def words(program: list[str] | None, module: str | None) -> list[str]:
    """Return the words after ``python`` that start a program."""
    if module is not None:
        return ["-m", module, *(program or [])]
    if not program:
        raise CommandError("no script; usage: torch-fl run [OPTIONS] SCRIPT.py [ARGS]", status=2)
    return program


def main(
    program: list[str],
    alias_cuda: bool,
    device: str | None,
    deny: bool,
    profile: str | None,
    summary: Path | None,
) -> None:
    """Become the script's interpreter."""
    distinct(None if profile is None else Path(profile), summary)
    wishes = running.Wishes(
        alias_cuda=alias_cuda,
        device=device,
        profile=None if profile is None else writable(Path(profile)),
        summary=None if summary is None else writable(summary),
        program=program,
    )
    running.become(program, wishes, deny)


def distinct(*paths: Path | None) -> None:
    """Refuse one file for two things: the second would be all that is left."""
    given = [path for path in paths if path is not None and not _is_stream(path)]
    for i, path in enumerate(given):
        if any(path.resolve() == other.resolve() for other in given[:i]):
            raise CommandError(f"{path}: expected a file of its own for each thing to be written", status=2)


def _is_stream(path: Path) -> bool:
    return path.exists() and not path.is_file()


def writable(path: Path) -> str:
    """Return the absolute path of a file to be written: better now than at the end of a long run."""
    if str(path) == "-":
        raise CommandError("-: expected the name of a file; standard output is /dev/stdout", status=2)
    folder = path.absolute().parent
    if not folder.is_dir():
        raise CommandError(f"{path}: no folder {folder}", status=2)
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        raise CommandError(f"{path}: cannot be written", status=2)
    return str(path.absolute())
