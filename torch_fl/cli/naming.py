# SPDX-License-Identifier: Apache-2.0
"""Names of chips, and what follows from them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from torch_fl.cli.errors import CommandError

LONGEST = 40  # the core's limit for a chip's name is wider, file systems' and people's are not
PREFIX = "torch-fl-backend-"
_VALID = re.compile(r"[a-z][a-z0-9]*([_-][a-z0-9]+)*")


@dataclass(frozen=True)
class Names:
    """What a project of one chip is called."""

    chip: str

    @property
    def distribution(self) -> str:
        """The name for pip, and of the project's folder."""
        return PREFIX + self.chip.replace("_", "-")

    @property
    def package(self) -> str:
        """The Python package."""
        return self.distribution.replace("-", "_")

    @property
    def library(self) -> str:
        """The plugin's file."""
        return f"libfl_{self.identifier}.so"

    @property
    def identifier(self) -> str:
        """The name where no hyphen may be."""
        return self.chip.replace("-", "_")


def checked(name: str) -> Names:
    """Return the names of a new chip, or tell what is wrong with its name."""
    plain = re.sub(r"[^a-z0-9]+", "-", name.lower().removeprefix(PREFIX)).strip("-").lstrip("0123456789-")
    if not _VALID.fullmatch(name) or len(name) > LONGEST:
        hint = f"; for example {plain[:LONGEST].rstrip('-')!r}" if plain else ""
        expected = "lower-case letters, digits and single hyphens or underscores between them, a letter first"
        raise CommandError(f"{name!r} cannot name a chip: expected {expected}, at most {LONGEST} characters{hint}")
    if name.startswith(PREFIX):
        raise CommandError(f"{name!r}: leave the prefix out, the chip's name is enough: {plain!r}")
    if name in shipped():
        raise CommandError(f"a chip named {name!r} ships with torch-fl; choose another name")
    return Names(name)


def shipped() -> list[str]:
    """Return the names of the chips that ship with torch-fl."""
    import torch_fl

    folder = Path(torch_fl.__file__).parent / "chips"
    return sorted(file.parent.name for file in folder.glob("*/libfl_*.so"))
