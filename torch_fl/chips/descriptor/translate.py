# SPDX-License-Identifier: Apache-2.0
"""Turns what pydantic says into problems that name the place in the text, in our words."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from torch_fl._suggest import nearest
from torch_fl.chips.descriptor.errors import MAX_PROBLEMS, Problem
from torch_fl.chips.descriptor.models import Descriptor
from torch_fl.chips.descriptor.source import Node, shown

_YES_NO = {"yes": "true", "on": "true", "no": "false", "off": "false", "y": "true", "n": "false"}


def problems(error: ValidationError, tree: Node) -> list[Problem]:
    """Return what is wrong with a tree, in the order of the text, and no more than anyone reads."""
    details = error.errors(include_url=False, include_input=True)
    found = [_problem(detail, tree) for detail in details[:MAX_PROBLEMS]]
    if len(details) > MAX_PROBLEMS:
        rest = f"{len(details) - MAX_PROBLEMS} more, of which this is the first"
        found.append(tree.problem(details[MAX_PROBLEMS]["loc"], "fewer mistakes", rest))
    return list(dict.fromkeys(found))


def _problem(detail: Any, tree: Node) -> Problem:
    path = [step for step in detail["loc"] if step != "[key]"]
    if detail["type"] in ("extra_forbidden", "invalid_key"):
        keys = valid_keys(path[:-1])
        expected = f"one of the keys {', '.join(keys)}"
        return tree.problem(path, expected, shown(path[-1]), suggestion=nearest(str(path[-1]), keys), at_key=True)
    if detail["type"] == "missing":
        return tree.problem(path, f"the key {path[-1]}", "none", fix=_fix_of_missing(path[-1]))
    at_key = "[key]" in detail["loc"]
    if detail["type"] == "mistake":
        context = detail["ctx"]
        close = _suggestion(context)
        return tree.problem(
            path, context["expected"], context["found"], suggestion=close, fix=context["fix"], at_key=at_key
        )
    expected, fix = _expected(detail)
    found = str(detail["ctx"]["actual_length"]) if "actual_length" in detail.get("ctx", {}) else shown(detail["input"])
    return tree.problem(path, expected, found, fix=fix, at_key=at_key)


def _suggestion(context: Mapping[str, Any]) -> str:
    word = context["word"]
    return nearest(str(word).lower(), context["choices"], context["others"]) if isinstance(word, str | bool) else ""


def _fix_of_missing(key: Any) -> str:
    return "Name the chip's library" if key == "runtime_so" else ""


_EXPECTED: dict[str, Callable[[dict[str, Any]], str]] = {
    "int_type": lambda context: "a whole number",
    "float_type": lambda context: "a number",
    "bool_type": lambda context: "true or false",
    "string_type": lambda context: "text",
    "list_type": lambda context: "a list",
    "dict_type": lambda context: "a mapping",
    "model_type": lambda context: "a mapping",
    "greater_than": lambda context: f"more than {context['gt']:.15g}",
    "greater_than_equal": lambda context: f"at least {context['ge']}",
    "less_than": lambda context: f"less than {context['lt']}",
    "less_than_equal": lambda context: f"at most {context['le']}",
    "too_short": lambda context: f"at least {context['min_length']} of them",
    "too_long": lambda context: f"at most {context['max_length']} of them",
}


def _expected(detail: Any) -> tuple[str, str]:
    """Return what was expected, and what to do, of an error of pydantic's own."""
    kind, value = detail["type"], detail["input"]
    words = _EXPECTED.get(kind)
    fix = ""
    if kind == "bool_type" and isinstance(value, str) and value.lower() in _YES_NO:
        fix = f"Write {_YES_NO[value.lower()]}"
    elif kind in ("int_type", "float_type") and isinstance(value, str) and re.fullmatch(r"[\d_.,]+", value):
        fix = "Write it without quotes, and without _ or a comma"
    elif kind == "string_type" and isinstance(value, int | float):
        fix = "Put it in quotes"
    return (words(detail.get("ctx", {})) if words is not None else kind.replace("_", " ")), fix


def valid_keys(path: list[Any]) -> list[str]:
    """Return the keys that the schema knows at a place."""
    model: Any = Descriptor
    for step in path:
        model = _below(model, step)
    found = _models(model)
    return [info.alias or name for name, info in found[0].model_fields.items()] if found else []


def _below(annotation: Any, step: Any) -> Any:
    """Return the annotation of what stands at ``step`` in something of this annotation."""
    for model in _models(annotation):
        for name, info in model.model_fields.items():
            if step in (name, info.alias):
                return info.annotation
    return annotation  # a list's index, a mapping's key, or the name of a branch


def _models(annotation: Any) -> list[type[BaseModel]]:
    """Return the models in an annotation, outermost first."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in typing.get_args(annotation) for model in _models(part)]
