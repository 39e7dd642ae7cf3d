# SPDX-License-Identifier: Apache-2.0
"""Tells the runs which entries were selected."""

from __future__ import annotations

import pytest

from tests.ops.session import RUNS, Runs


@pytest.fixture(scope="session")
def runs() -> Runs:
    return RUNS


def pytest_collection_finish(session: pytest.Session) -> None:
    for item in session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if "mode" in parameters and "entry" in parameters:
            RUNS.wanted[parameters["mode"]].add(parameters["entry"])
