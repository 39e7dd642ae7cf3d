# SPDX-License-Identifier: Apache-2.0
"""Context managers that can be entered more than once."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ReusableContext(contextlib.ContextDecorator, Generic[T]):
    """Makes a fresh context manager each time that it is entered, one inside the other too."""

    def __init__(self, make: Callable[[], contextlib.AbstractContextManager[T]]) -> None:
        self._make = make
        self._entered: list[tuple[int, contextlib.AbstractContextManager[T]]] = []  # with the thread that did
        self._lock = threading.Lock()

    def __enter__(self) -> T:
        context = self._make()
        entry = (threading.get_ident(), context)
        with self._lock:
            self._entered.append(entry)
        try:
            return context.__enter__()
        except BaseException as error:  # Ctrl-C, perhaps when it has been entered already
            with self._lock:
                self._entered.remove(entry)
            context.__exit__(type(error), error, error.__traceback__)
            raise

    def __exit__(self, *error: Any) -> bool | None:
        with self._lock:
            mine = (i for i, (thread, _) in enumerate(self._entered) if thread == threading.get_ident())
            _, context = self._entered.pop(max(mine, default=-1))  # a block may end on another thread than it began on
        return context.__exit__(*error)


def reusable(function: Callable[P, Iterator[T]]) -> Callable[P, ReusableContext[T]]:
    """Decorate as ``contextlib.contextmanager`` does, but for objects that may be kept and entered again."""
    make = contextlib.contextmanager(function)

    @functools.wraps(function)
    def manager(*args: P.args, **kwargs: P.kwargs) -> ReusableContext[T]:
        return ReusableContext(lambda: make(*args, **kwargs))

    return manager
