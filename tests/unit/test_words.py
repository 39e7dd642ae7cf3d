# SPDX-License-Identifier: Apache-2.0
"""Small parts that many use: numbers in words, ends of processes, files written whole, contexts entered again."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_fl._context import reusable
from torch_fl._exits import ended, shell_status
from torch_fl._files import write_whole
from torch_fl._words import counted


def test_one_thing_and_several() -> None:
    assert [counted(number, "pair") for number in (0, 1, 2)] == ["0 pairs", "1 pair", "2 pairs"]
    assert counted(12345, "operator call", ",") == "12,345 operator calls"


@pytest.mark.parametrize(
    ("code", "text", "status"),
    [
        ("raise SystemExit(3)", "exit status 3", 3),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL", 137),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", f"signal {signal.SIGRTMIN + 3}", 128 + signal.SIGRTMIN + 3),
    ],
)
def test_ends_of_processes(code: str, text: str, status: int) -> None:
    found = subprocess.run([sys.executable, "-c", f"import os, signal\n{code}"], check=False).returncode
    assert (ended(found), shell_status(found)) == (text, status)


@pytest.mark.parametrize("name", ["a.txt", "a" * 255, "\N{SNOWMAN}" * 85])
def test_a_file_is_written_whole_or_not_at_all(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name
    write_whole(file, "one")
    assert file.read_text() == "one"

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_whole(file, "another")
    assert file.read_text() == "one"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_that_is_written_again_keeps_its_permissions(tmp_path: Path) -> None:
    file = tmp_path / "private.json"
    file.touch(mode=0o600)
    write_whole(file, "one")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("one", 0o600)


class Entered:
    """A context that notes who entered and left."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self._made = 0

    def manager(self) -> Iterator[int]:
        self._made += 1
        number = self._made
        self.log.append(f"+{number}")
        try:
            yield number
        finally:
            self.log.append(f"-{number}")


def test_a_context_that_two_threads_enter_is_left_by_who_entered() -> None:
    entered = Entered()
    context = reusable(entered.manager)()
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with context:
            inside.set()
            leave.wait(10)

    thread = threading.Thread(target=other)
    with context:
        thread.start()
        assert inside.wait(10)
    assert entered.log == ["+1", "+2", "-1"]
    leave.set()
    thread.join()
    assert entered.log == ["+1", "+2", "-1", "-2"]


def test_a_context_may_be_left_by_another_thread_than_entered_it() -> None:
    entered = Entered()
    context = reusable(entered.manager)()
    context.__enter__()
    thread = threading.Thread(target=lambda: context.__exit__(None, None, None))
    thread.start()
    thread.join()
    assert entered.log == ["+1", "-1"]
