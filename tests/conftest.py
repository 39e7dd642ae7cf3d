# SPDX-License-Identifier: Apache-2.0
"""Prints the figures that suites registered with tests.harness.summary at the end, with and without pytest-xdist."""

from __future__ import annotations

from typing import Any

import pytest

from tests.harness import summary

_FROM_WORKERS: dict[str, str] = {}


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["torch_fl_sections"] = summary.sections()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    _FROM_WORKERS.update(getattr(node, "workeroutput", {}).get("torch_fl_sections", {}))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    for title, text in {**_FROM_WORKERS, **summary.sections()}.items():
        terminalreporter.section(title)
        terminalreporter.write_line(text)
