# SPDX-License-Identifier: Apache-2.0
"""The frame of every page: one HTML file that needs no network, light and dark. Jinja escapes every name in it."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jinja2
from markupsafe import Markup


def template(package: str, name: str, *filters: Callable[..., Any]) -> jinja2.Template:
    """Return a package's template, which extends ``frame.html``; ``filters`` have their function's name."""
    loaders = [jinja2.PackageLoader(package), jinja2.PackageLoader(__name__)]
    templates = jinja2.Environment(
        loader=jinja2.ChoiceLoader(loaders),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {function.__name__: function for function in (breakable, count, *filters)}
    return templates.get_template(name)


def count(value: int) -> str:
    """Return a whole number with separators."""
    return f"{value:,}"


def breakable(name: str) -> Markup:
    """Return a name that may wrap behind its separators."""
    parts = re.split(r"(?<=[/._:])(?=\w)", name)
    return Markup("<wbr>").join(parts)
