# SPDX-License-Identifier: Apache-2.0
"""A test that takes `chip` runs on every device and in every kind of memory."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from opencl_chips import CHIPS, MISSING, PLUGINS, PROBLEM
from opencl_host import HERE, Chip, Plugin


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "chip" in metafunc.fixturenames:
        absent = [pytest.param(name, marks=pytest.mark.skip(why)) for name, why in MISSING.items()]
        metafunc.parametrize("chip", [*CHIPS, *absent], indirect=True)


@pytest.fixture
def chip(request: pytest.FixtureRequest) -> Iterator[Chip]:
    chip = CHIPS[request.param]
    yield chip
    chip.synchronize()


@pytest.fixture
def plugins() -> dict[str, Plugin]:
    if not CHIPS:
        pytest.skip(f"no OpenCL runtime: {PROBLEM}")
    return PLUGINS


@pytest.fixture
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of memory of the test's chip."""
    return request.node.callspec.params["chip"].split("-", 1)[1]


@pytest.fixture(scope="session")
def loader(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A loader that counts waits, and fails when told to."""
    compiler = shutil.which("cc") or shutil.which("gcc") or pytest.skip("no C compiler")
    library = tmp_path_factory.mktemp("loader") / "libfailing_opencl.so"
    source = HERE / "failing_opencl.c"
    command = [compiler, "-shared", "-fPIC", source, "-o", library, "-Wl,--no-as-needed", "-l:libOpenCL.so.1", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return str(library)
