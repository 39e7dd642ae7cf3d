# SPDX-License-Identifier: Apache-2.0
"""Reading JSON that somebody may have damaged: every mistake is told with its file, place, and what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

_MOST = 2**63 - 1
_LONGEST = 1e18  # nanoseconds: 30 years
_DIGITS = 30  # of whole numbers that are looked at
_SHOWN = 40  # characters of a wrong value
# Where pydantic's words are not JSON's.
_EXPECTED = {
    "missing": "a value",
    "dict_type": "an object",
    "model_type": "an object",
    "tuple_type": "a list",
    "too_short": "at least one item",
}
_SURROGATE = re.compile(r"\\ud[89a-f]", re.IGNORECASE)  # half a character, mostly followed by the other

Count = Annotated[int, Field(strict=True, ge=0, le=_MOST)]
Whole = Annotated[int, Field(strict=True)]
Flag = Annotated[bool, Field(strict=True)]
Positive = Annotated[int, Field(strict=True, ge=1, le=_MOST)]
Number = Annotated[float, Field(strict=True, ge=0, allow_inf_nan=False)]
Time = Annotated[float, Field(strict=True, ge=0, le=_LONGEST, allow_inf_nan=False)]


class BadResults(ValueError):
    """A file that holds no results, or damaged ones."""


class Part(BaseModel):
    """A part of a file. A later minor version may know more."""

    model_config = ConfigDict(frozen=True, extra="ignore")


@dataclass(frozen=True)
class NoNumber:
    """A number that JSON lacks, or one too long to be meant. No part of a file may be one."""

    text: str


Kind = TypeVar("Kind", bound=Part)


def load_json(file: Path) -> Any:
    """Read a JSON file; raises BadResults that says what is wrong with it."""
    try:
        text = file.read_text(encoding="utf-8")
        value = json.loads(text, parse_int=_whole, parse_constant=NoNumber)
        if _SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False, default=str).encode()
        return value
    except OSError as error:
        raise BadResults(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise BadResults(f"{file}: not JSON: not even text") from None
    except UnicodeEncodeError:
        raise BadResults(f"{file}: not JSON that anybody wrote: half a character stands alone") from None
    except RecursionError:
        raise BadResults(f"{file}: not JSON that anybody wrote: it is nested too deeply") from None
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) - 1 or error.msg.startswith("Unterminated")
        what = "it ends in the middle: was it truncated?" if ends else f"{error.msg}"
        raise BadResults(f"{file}, line {error.lineno}, column {error.colno}: not JSON: {what}") from None


def _whole(text: str) -> int | NoNumber:
    return int(text) if len(text) <= _DIGITS else NoNumber(f"a number of {len(text)} digits")


def checked(kind: type[Kind], value: Any, place: str, command: str) -> Kind:
    """Return a part of a file from JSON's values; raises BadResults. ``command`` writes such files."""
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        raise BadResults(f"{place}: {_told(error.errors())}; not as `{command}` writes it: run it anew") from None


def _told(errors: Iterable[Any]) -> str:
    """Tell the first of some mistakes: key, expected, found."""
    first, *others = errors
    key = ".".join(str(part) for part in first["loc"])
    expected = _EXPECTED.get(first["type"], first["msg"].removeprefix("Input should be "))
    found = "nothing" if first["type"] == "missing" else shown(first["input"])
    more = f" (and {len(others)} more)" if others else ""
    return f"{key}: expected {expected}, found {found}{more}"


def shown(value: Any) -> str:
    """Return a wrong value as one line, cut where it is long."""
    if isinstance(value, NoNumber):
        return value.text
    if isinstance(value, dict | list | tuple):
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = json.dumps(value) if value is None or isinstance(value, bool) else ascii(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
