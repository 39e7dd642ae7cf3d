# SPDX-License-Identifier: Apache-2.0
"""``torch-fl compare``: what changed between two runs."""

from __future__ import annotations

import sys
from pathlib import Path

from rich.console import Console

from torch_fl._suggest import did_you_mean
from torch_fl.cli import output
from torch_fl.cli.errors import CommandError
from torch_fl.observe.compare import BadComparison, Options, Subject, compare, render

_NOTHING = "nothing"


def main(before: Path, after: Path, options: Options, fail_on: str, form: str, every: bool) -> int:
    """Compare, print; return the exit status: 1 if something of what was named is worse."""
    subjects = _subjects(fail_on)
    try:
        found = compare(before, after, options)
    except BadComparison as error:
        raise CommandError(str(error), status=2) from None
    if form == "json":
        output.print_json(found.as_dict())
    elif form == "markdown":
        print(render.markdown(found, every), end="")
    else:
        render.show(Console(width=None if sys.stdout.isatty() else output.pipe_width()), found, every)
    if found.speed is not None and not found.speed.tested and Subject.SPEED in subjects:
        raise CommandError(f"speed could not be tested: {render.why_untested(found.speed)}", status=2)
    return int(bool(found.regressions(subjects)))


def _subjects(words: str) -> frozenset[Subject]:
    names = [word.strip() for word in words.split(",") if word.strip()]
    known = [*(subject.value for subject in Subject), _NOTHING]
    for name in names:
        if name not in known:
            raise CommandError(f"--fail-on: no {name!r}{did_you_mean(name, known)} ({', '.join(known)})", status=2)
    if not names or (_NOTHING in names and len(names) > 1):
        raise CommandError(
            f"--fail-on: expected some of {', '.join(known[:-1])}, or {_NOTHING} alone, found {words!r}", status=2
        )
    return frozenset(Subject(name) for name in names if name != _NOTHING)
