# SPDX-License-Identifier: Apache-2.0
"""``torch-fl run``: somebody's own script, watched.

The command becomes the script's interpreter (``execv``) and says what is wanted in the variable `VARIABLE`, which
torch_fl reads when it is loaded. So the script runs as Python itself runs it: its ``__main__``, arguments, tracebacks,
exit status and child processes are its own, and there is nothing of ours on the stack.
"""

from __future__ import annotations

import atexit
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from torch_fl._files import write_whole
from torch_fl.observe import summary

VARIABLE = "TORCH_FL_RUN"


@dataclass(frozen=True)
class Wishes:
    """What a run is to do besides running. Paths are absolute: a script may change its folder."""

    alias_cuda: bool = False
    device: str | None = None  # where tensors go whose device the script does not name
    auto: bool = False  # ... to the preferred device
    profile: str | None = None
    summary: str | None = None
    report: str | None = None  # where the data of a report goes
    program: Sequence[str] = ()
    quiet: bool = False
    pid: int = 0  # of the process that reports; its children only inherit the devices


def command(program: Sequence[str]) -> list[str]:
    """Return the command that runs ``script.py args`` or ``-m module args`` in an interpreter like this one."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return [sys.executable, *flags, *program]


def environment(wishes: Wishes, deny: bool) -> dict[str, str]:
    """Return the environment that makes a run's wishes known."""
    denied = {"TORCH_FL_FALLBACK": "deny"} if deny else {}
    return {**os.environ, **denied, VARIABLE: json.dumps(asdict(wishes))}


def become(program: Sequence[str], wishes: Wishes, deny: bool = False) -> None:
    """Replace this process by the script's interpreter."""
    words = command(program)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(words[0], words, environment(_with_pid(wishes, os.getpid()), deny))


def _with_pid(wishes: Wishes, pid: int) -> Wishes:
    return Wishes(**{**asdict(wishes), "pid": pid})


def observed(program: Sequence[str], wishes: Wishes, stdout: TextIO | None = None) -> int:
    """Run a script as a child, wait, and return its exit status (negative: the signal that ended it)."""
    child = subprocess.Popen(
        [*command(["-c", _AS_CHILD]), *command(program)], env=environment(wishes, deny=False), stdout=stdout
    )
    while True:
        try:
            return child.wait()
        except KeyboardInterrupt:  # the terminal interrupts the script, too, whose answer counts
            continue


# A child's number is not known before it runs; execv() keeps it.
_AS_CHILD = f"""
import json, os, sys
wishes = json.loads(os.environ[{VARIABLE!r}])
os.environ[{VARIABLE!r}] = json.dumps(dict(wishes, pid=os.getpid()))
os.execv(sys.argv[1], sys.argv[1:])
"""


# ---- In the script's process ---------------------------------------------------------------------------------------


def begin() -> None:
    """Do what the environment wishes; torch_fl has just been loaded."""
    wishes = Wishes(**json.loads(os.environ[VARIABLE]))
    try:
        _prepare(wishes)
    except Exception as error:
        print(f"torch-fl run: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if wishes.pid == os.getpid():
        _Watch(wishes)


def _prepare(wishes: Wishes) -> None:
    import torch_fl

    if wishes.alias_cuda:
        torch_fl.alias_cuda()
    if wishes.device is not None:
        torch_fl.set_preferred_device(wishes.device)
        torch_fl.set_default_device(wishes.device)
    if wishes.device is not None or wishes.auto:
        torch_fl.auto()


class _Watch:
    """Recording, from now until the script has ended."""

    def __init__(self, wishes: Wishes) -> None:
        # Now, since modules that are imported at exit make Python forget that Ctrl-C ended the script.
        import torch_fl.routing.counters  # noqa: F401

        self.wishes, self.recording = wishes, ExitStack()
        self.profile: Any = None
        if wishes.profile or wishes.report:
            from torch_fl import profiler
            from torch_fl.observe.report.scopes import layers_of_all

            self.recording.enter_context(layers_of_all())
            self.profile = self.recording.enter_context(profiler.profile())
        atexit.register(self.finish)

    def finish(self) -> None:
        """Write everything; what cannot be written is told, and changes nothing for the script."""
        if self.wishes.pid != os.getpid():  # a fork of the script's
            return
        self.recording.close()
        for job in (self._write_profile, self._write_report, self._write_summary):
            try:
                job()
            except Exception as error:
                _tell(f"torch-fl run: {type(error).__name__}: {error}\n")

    def _write_profile(self) -> None:
        if self.wishes.profile:
            _export(self.profile, self.wishes.profile)

    def _write_report(self) -> None:
        if self.wishes.report:
            from torch_fl.observe.report import data

            write_whole(Path(self.wishes.report), data.collect(self.profile, shlex.join(self.wishes.program)).to_json())

    def _write_summary(self) -> None:
        found = summary.collect(self.wishes.program)
        if not self.wishes.quiet:
            _tell(found.text())
        if self.wishes.summary:
            write_whole(Path(self.wishes.summary), json.dumps(found.as_dict(), indent=2) + "\n")


def _tell(text: str) -> None:
    """Write to stderr, which is the script's: it may be closed, or None.

    Past its buffer: what stays there because it cannot be written makes Python exit with status 120.
    """
    with suppress(Exception):
        sys.stderr.flush()
        if not isinstance(sys.stderr, io.TextIOWrapper):  # something of the script's
            sys.stderr.write(text)
            return
        own = sys.stderr
        with open(own.fileno(), "w", encoding=own.encoding, errors=own.errors, closefd=False) as stream:
            stream.write(text)


def _export(profile: Any, file: str) -> None:
    """Write a profile in the form that the file's name asks for."""
    if file.endswith(".jsonl"):
        profile.export_json_lines(file)
    else:
        profile.export_chrome_trace(file)
