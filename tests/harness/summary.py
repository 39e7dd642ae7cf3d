# SPDX-License-Identifier: Apache-2.0
"""Figures that a suite wants printed at the end of the test session, also when pytest-xdist runs it elsewhere."""

from __future__ import annotations

from collections.abc import Callable

_PRODUCERS: list[Callable[[], dict[str, str]]] = []


def register(producer: Callable[[], dict[str, str]]) -> None:
    """`producer` returns texts by title; called once at the end."""
    _PRODUCERS.append(producer)


def sections() -> dict[str, str]:
    """All texts by title."""
    return {title: text for producer in _PRODUCERS for title, text in producer().items()}
