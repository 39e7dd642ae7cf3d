# SPDX-License-Identifier: Apache-2.0
"""Print requirements of pyproject.toml, one a line: of extras, or "dependencies" (Python 3.10 has no tomllib)."""

import re
import sys
from pathlib import Path


def requirements(extra: str, text: str) -> list[str]:
    """Return the requirement strings of one extra, or the project's own dependencies."""
    section = text.split("[project.optional-dependencies]", 1)[extra != "dependencies"]
    found = re.search(rf"^{re.escape(extra)} = \[(.*?)\]", section, re.S | re.M)
    if found is None:
        raise SystemExit(f"pyproject.toml has no extra named {extra!r}")
    return re.findall(r'"([^"]+)"', found[1])


if __name__ == "__main__":
    content = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    print("\n".join(item for extra in sys.argv[1:] for item in requirements(extra, content)))
