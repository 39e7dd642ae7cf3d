# SPDX-License-Identifier: Apache-2.0
"""Which parts of kernels/ ran, told from the sources of the modules that a process left in its cache folder.

A part is a function, a macro of several lines (some kernels' bodies are such), or what stands under an #if. It ran where
a module's entry leads to it: where the entry's text, and that of the functions it calls, holds it once preprocessed.
"""

from __future__ import annotations

import functools
import pathlib
import re
import struct
import subprocess
from collections.abc import Iterator

KERNELS = pathlib.Path(__file__).resolve().parents[3] / "kernels"
OTHERS = {"prelude_c99.h"}  # of another dialect
MAGIC = b"torch-fl module 1\n"
FUNCTION = re.compile(r"^FUNCTION [^(]*?(M\(\w+\)|\w+)\(")
MACRO = re.compile(r"^\s*#define (\w+)(\([^)]*\))?.*\\$")
CONDITION = re.compile(r"^\s*#\s*(if|ifdef|ifndef|elif|else)\b.*")
BEGIN = re.compile(r"^(#define FL_F64 1\n)?// SPDX", re.MULTILINE)  # after the compiler's identity
DEFINITION = re.compile(r"\b(?:static inline|__kernel) [^(;{}]*?(\w+)\(")


def sources(folder: pathlib.Path | str) -> Iterator[str]:
    """What the modules in a cache folder were compiled from (csrc/runtime/modules.cpp)."""
    for path in pathlib.Path(folder).glob("*.bin"):
        file = path.read_bytes()
        assert file.startswith(MAGIC), path
        (length,) = struct.unpack_from("<Q", file, len(MAGIC))
        key = file[len(MAGIC) + 8 :][:length].decode()
        begin = BEGIN.search(key)
        assert begin is not None, path
        yield key[begin.start() :]


@functools.cache
def marked(path: pathlib.Path) -> tuple[str, dict[str, str]]:
    """A file's text with a word put into each part; the parts by their words."""
    parts: dict[str, str] = {}
    text = []

    def word(part: str) -> str:
        mark = f"PART_{path.stem}_{len(parts)}_"
        parts[mark] = f"{path.name}: {part}"
        return mark

    inside_macro = False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        goes_on, starts = line.endswith("\\"), not inside_macro
        inside_macro = goes_on
        if starts and (found := MACRO.match(line)):
            head = line.index(found[1]) + len(found[1] + (found[2] or ""))
            text.append(f"{line[:head]} {word(found[1])} {line[head:]}")
            continue
        text.append(line)
        if starts and CONDITION.match(line):
            text.append(word(f"line {number}, {line.strip()}"))
        elif found := FUNCTION.match(line):
            inner = found[1].removeprefix("M(").rstrip(")")
            for name in (f"m_{inner}", f"v_{inner}") if inner != found[1] else (inner,):
                parts[f"{name}()"] = f"{path.name}: {name}()"
    return "\n".join(text) + "\n", parts


@functools.cache
def files() -> list[pathlib.Path]:
    return sorted(path for path in KERNELS.glob("*.h") if path.name not in OTHERS)


def parts() -> set[str]:
    return {part for path in files() for part in marked(path)[1].values()}


def preprocessed(source: str, compiler: str) -> str:
    done = subprocess.run(
        [compiler, "-E", "-P", "-undef", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True
    )
    return done.stdout


@functools.cache
def plain(path: pathlib.Path) -> str:
    return path.read_text()


def files_in(source: str) -> list[pathlib.Path]:
    return [path for path in files() if plain(path) in source]


def ran(source: str, compiler: str) -> set[str]:
    """The parts that a module's entry leads to."""
    known: dict[str, str] = {}
    for path in files_in(source):
        text, mine = marked(path)
        source = source.replace(plain(path), text)
        known |= mine
    text = preprocessed(source, compiler)
    bodies: dict[str, str] = {}
    rest, at = [], 0
    while found := DEFINITION.search(text, at):
        begin = text.index("{", found.end())
        depth, end = 1, begin + 1
        while depth:
            step = re.compile(r"[{}]").search(text, end)
            assert step is not None
            depth += 1 if step[0] == "{" else -1
            end = step.end()
        rest.append(text[at : found.start()])
        bodies[found[1]] = text[found.end() : end]  # with the parameters
        at = end
    rest.append(text[at:])
    reached, todo = set(), ["fl_body"]
    words: set[str] = set(re.findall(r"\w+", " ".join(rest)))
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        mine_words = set(re.findall(r"\w+", bodies[name]))
        words |= mine_words
        todo += mine_words & set(bodies)
    found_parts = {known[word] for word in words if word in known}
    return found_parts | {known[f"{name}()"] for name in reached if f"{name}()" in known}


def never_ran(folder: pathlib.Path | str, compiler: str, but: set[str]) -> set[str]:
    """The parts, but those, that no module in a cache folder leads to."""
    left = parts() - but
    for source in sources(folder):
        if any(part in left for path in files_in(source) for part in marked(path)[1].values()):
            left -= ran(source, compiler)
    return left
