# SPDX-License-Identifier: Apache-2.0
"""Workers: processes in which a crash, a hang or a lost device costs one operator and not the run."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch_fl._exits import ended
from torch_fl.conformance.verdict import Row, Verdict

_START_SECONDS = 300.0
_ENDS_AT_MOST = 3  # of a worker by one operator; the types that are left then fail unseen
_AFTER_LOSS = "the process ended with exit status 3"  # worker.LOST: it has told what lost the device


class WorkerError(RuntimeError):
    """A worker that does not even start."""


@dataclass
class Settings:
    """How every worker runs."""

    chip: str = ""
    path: str = ""  # of a plugin, descriptor or folder that is added for the run
    mode: str = "test"
    routes: tuple[str, ...] = ()
    ops: str = ""
    dtypes: tuple[str, ...] = ()
    jobs: int = 1
    seed: int = 0
    timeout: float = 60.0  # seconds for one case
    quick: bool = False
    opinfo: bool = False
    guard_bytes: int = 64
    environment: dict[str, str] = field(default_factory=dict)

    def for_worker(self, **more: Any) -> str:
        """Return what a worker needs, as JSON."""
        leave = ("environment", "jobs", "timeout")
        values = {key: value for key, value in vars(self).items() if key not in leave}
        return json.dumps({**values, **more})


class Process:
    """One worker process, restarted as needed."""

    def __init__(self, settings: Settings, **more: Any) -> None:
        self._settings, self._words = settings, settings.for_worker(**more)
        self._process: subprocess.Popen[bytes] | None = None
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._buffer = b""

    def start(self) -> None:
        """Start anew."""
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self._settings.environment}
        command = [sys.executable, "-X", "faulthandler", "-m", "torch_fl.conformance.worker", self._words]
        self._log.seek(0)
        self._log.truncate()
        self._buffer = b""
        self._process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log
        )

    def send(self, task: dict[str, Any]) -> None:
        """Hand over a task; starts the process if there is none."""
        if self._process is None or self._process.poll() is not None:
            self.start()
            if self.receive(_START_SECONDS) is None:
                raise WorkerError(f"a worker did not start: {self.death(_START_SECONDS)}\n{self.stderr()}")
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(task).encode() + b"\n")
        self._process.stdin.flush()

    def receive(self, timeout: float) -> dict[str, Any] | None:
        """Return the next message; None when the process is gone, or silent for too long."""
        assert self._process is not None
        assert self._process.stdout is not None
        pipe = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([pipe], [], [], timeout)
            data = os.read(pipe, 1 << 16) if ready else b""
            if not data:
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return dict(json.loads(line))

    def death(self, timeout: float) -> str:
        """End the process and tell how it ended."""
        assert self._process is not None
        try:
            code = self._process.wait(timeout=1)  # a dying process closes its pipe a little before it is gone
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            return f"timeout: no end within {timeout:g} s"
        return f"crash: {ended(code)}" if code < 0 else f"the process ended with {ended(code)}"

    def stderr(self) -> str:
        """Return the last lines that the process wrote to stderr."""
        self._log.seek(0)
        return "\n".join(self._log.read().decode(errors="replace").splitlines()[-8:])

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            if self._process.poll() is None:
                assert self._process.stdin is not None
                with contextlib.suppress(BrokenPipeError):
                    self._process.stdin.close()
                try:
                    self._process.wait(timeout=10)
                except subprocess.TimeoutExpired:
                    self._process.kill()
                    self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
        self._log.close()


def plan(settings: Settings) -> dict[str, Any]:
    """Ask a process of its own what there is to do, so that this one opens no device."""
    process = Process(settings, plan=True)
    try:
        process.start()
        answer = process.receive(_START_SECONDS)
        if answer is None:
            raise WorkerError(f"the chip cannot be loaded: {process.death(_START_SECONDS)}\n{process.stderr()}")
        return answer
    finally:
        process.stop()


class Pool:
    """Runs tasks on ``settings.jobs`` workers; ``on_row`` hears of each verdict."""

    def __init__(self, settings: Settings, on_row: Callable[[Row], None], on_task: Callable[[str], None]) -> None:
        self._settings, self._on_row, self._on_task = settings, on_row, on_task
        self._error: BaseException | None = None

    def run(self, tasks: list[dict[str, Any]]) -> None:
        """Run all tasks; raises what went wrong with the workers themselves."""
        todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for task in tasks:
            todo.put(task)
        threads = [threading.Thread(target=self._serve, args=(todo,), daemon=True) for _ in range(self._settings.jobs)]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except KeyboardInterrupt as error:  # which the workers get as well: no more of them
            self._error = error
            raise
        if self._error is not None:
            raise self._error

    def _serve(self, todo: queue.SimpleQueue[dict[str, Any]]) -> None:
        process = Process(self._settings)
        try:
            while self._error is None:
                self._run(process, todo.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            self._error = error
        finally:
            process.stop()

    def _run(self, process: Process, task: dict[str, Any]) -> None:
        left, ends = list(task["dtypes"]), 0
        while left and ends < _ENDS_AT_MOST and self._error is None:
            done, case = self._attempt(process, {**task, "dtypes": left}, left)
            if done:
                break
            ends += 1
            reason = process.death(self._settings.timeout)
            if left and (case is not None or reason != _AFTER_LOSS):
                self._fail(task["op"], left.pop(0), reason, case or "")
        for dtype in left if ends == _ENDS_AT_MOST else ():
            self._fail(task["op"], dtype, f"not run, for {ends} types before it ended the worker: {reason}", "")
        self._on_task(task["op"])

    def _fail(self, op: str, dtype: str, reason: str, case: str) -> None:
        self._on_row(Row(op, dtype, self._settings.mode, Verdict.FAILED, reason=reason, case=case))

    def _attempt(self, process: Process, task: dict[str, Any], left: list[str]) -> tuple[bool, str | None]:
        """Run a task. Return whether it is done and, if not, the case that was not finished.

        ``left`` loses the types that are done.
        """
        case: str | None = None
        try:
            process.send(task)
        except BrokenPipeError:
            return False, case
        while (message := process.receive(self._settings.timeout)) is not None:
            if "begin" in message:
                case = message["begin"]
            elif "row" in message:
                row, case = Row.from_dict(message["row"]), None
                left.remove(row.dtype)
                self._on_row(row)
            else:
                return True, None
        return False, case
