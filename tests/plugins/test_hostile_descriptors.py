# SPDX-License-Identifier: Apache-2.0
"""Whatever stands in a descriptor: an error that names the place, soon, and nothing else.

The first line of every file in descriptors/ says what is to be found: ``# line 5: part of the error``.
"""

from __future__ import annotations

import copy
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.plugins.test_descriptors import FULL
from torch_fl.chips.descriptor import DescriptorError, Problem, load, reader, validate
from torch_fl.chips.descriptor.lower import lower

CORPUS = sorted((Path(__file__).parent / "descriptors").glob("*.yaml"))
SECONDS = 1.0


def expectation(path: Path) -> tuple[int, str]:
    first = path.read_bytes().split(b"\n", 1)[0].decode()
    match = re.fullmatch(r"# line (\d+): (.+)", first)
    assert match is not None, f"{path}: the first line says nothing"
    return int(match[1]), match[2]


def problems_of(path: Path) -> list[Problem]:
    start = time.process_time()
    found = validate(path)
    assert time.process_time() - start < SECONDS
    return found


def test_the_corpus_is_large() -> None:
    assert len(CORPUS) >= 200
    bodies = {path.read_bytes().split(b"\n", 1)[1] for path in CORPUS}
    assert len(bodies) == len(CORPUS)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_malformed_descriptor_is_refused_at_its_place(path: Path) -> None:
    line, fragment = expectation(path)
    errors = [problem for problem in problems_of(path) if problem.severity == "error"]
    text = "\n".join(map(str, errors))
    assert any(problem.line == line and fragment in str(problem) for problem in errors), text
    assert all(problem.line > 0 and problem.column > 0 and Path(problem.file).exists() for problem in errors), text
    assert "pydantic" not in text
    assert "Input should" not in text


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_loading_raises_one_kind_of_error(path: Path) -> None:
    if path.stem.startswith("torch_"):  # only validate() asks for all of it
        load(path)
        return
    with pytest.raises(DescriptorError) as caught:
        lower(load(path))
    assert caught.value.problems
    assert str(caught.value.problems[0]) in str(caught.value)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_without_libyaml_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyYAML's own parser counts and words a little differently."""
    monkeypatch.setattr(reader, "_Loader", yaml.BaseLoader)
    assert [problem for problem in problems_of(path) if problem.line > 0 and problem.severity == "error"]


# ---- the fuzzer: bounded by examples; HOSTILE_EXAMPLES=100000 for a long run

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "200"))
FUZZ = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
)
BIT_BY_BIT = FULL.encode()
TREE = yaml.safe_load(FULL)
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(
        ["aten::mm", "float32", "4GiB", "../x", "$HOME", "${X", "*a", "&a b", "!!x", "%", "- x", "~", ".inf"]
    ),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8) | st.integers(), inner, max_size=4),
    max_leaves=8,
)


def survives(folder: Path, content: bytes) -> None:
    """Load this text: a descriptor, or an error that names a place; never anything else, and soon."""
    path = folder / "fuzzed.yaml"
    path.write_bytes(content)
    start = time.process_time()
    problems = refusal(path)
    assert time.process_time() - start < SECONDS
    assert all(problem.line > 0 and problem.column > 0 for problem in problems), problems
    "\n".join(map(str, problems)).encode()


def refusal(path: Path) -> list[Problem]:
    try:
        lower(load(path))
    except DescriptorError as error:
        return error.problems or [Problem(str(path), 0, 0, "", "a reason")]
    return []


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


@FUZZ
@given(content=st.binary(max_size=300))
def test_random_bytes(folder: Path, content: bytes) -> None:
    survives(folder, content)


@FUZZ
@given(content=st.text(alphabet="ab:-?[]{},#&*!|>'\"%@` \n\t0.\\$~<=", max_size=120))
def test_random_yaml(folder: Path, content: str) -> None:
    survives(folder, content.encode())


@FUZZ
@given(data=st.data())
def test_a_good_text_with_bytes_changed(folder: Path, data: st.DataObject) -> None:
    content = bytearray(BIT_BY_BIT)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = min(len(content), start + data.draw(st.integers(0, 12)))
        content[start:end] = data.draw(
            st.binary(max_size=8) | st.sampled_from([b"\n", b": ", b"  ", b"- ", b"[", b'"'])
        )
    survives(folder, bytes(content))


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return (collection, key) of everything in a tree."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in entries for place in [(value, key), *places(inner)]]


@FUZZ
@given(data=st.data())
def test_a_good_tree_with_values_changed(folder: Path, data: st.DataObject) -> None:
    tree = copy.deepcopy(TREE)
    for _ in range(data.draw(st.integers(1, 3))):
        collection, key = data.draw(st.sampled_from(places(tree)))
        what = data.draw(st.sampled_from(["value", "key", "none", "wrap"]))
        if what == "value" or isinstance(collection, list):
            collection[key] = data.draw(VALUES)
        elif what == "key":
            collection[data.draw(st.text(max_size=8) | st.sampled_from(["name", "impl", "ndim"]))] = collection[key]
        elif what == "wrap":
            collection[key] = data.draw(st.sampled_from([[collection[key]], {"values": collection[key]}]))
        else:
            del collection[key]
    survives(folder, yaml.dump(tree, Dumper=DUMPER, encoding="utf-8"))
