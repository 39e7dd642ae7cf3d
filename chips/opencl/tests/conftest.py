# SPDX-License-Identifier: Apache-2.0
"""A test that takes `chip` runs on every device and in every kind of memory."""

from __future__ import annotations

import pathlib
import sys
from collections.abc import Iterator

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from opencl_chips import CHIPS, MISSING, PLUGINS, PROBLEM
from opencl_host import Chip, Plugin


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
