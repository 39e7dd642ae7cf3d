# SPDX-License-Identifier: Apache-2.0
"""Run tasks in worker processes, so that a crash or a hang costs one check and not the run."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.ops.engine import FORWARD_VARIANTS, NO_DTYPE, VARIANTS
from tests.ops.outcome import Outcome

ROOT = Path(__file__).resolve().parents[2]
_START_TIMEOUT = 300.0
_CALLS = dict[tuple[str, str], int]


@dataclasses.dataclass
class Settings:
    """How every worker runs."""

    variants: Sequence[str] = VARIANTS
    max_samples: int = 8
    max_variant_samples: int = 3
    policy: str = "allow"
    jobs: int = 2
    timeout: float = 120.0  # seconds without progress
    environment: dict[str, str] = dataclasses.field(default_factory=dict)

    def for_worker(self) -> str:
        keep = ("variants", "max_samples", "max_variant_samples", "policy")
        return json.dumps({key: getattr(self, key) for key in keep})


@dataclasses.dataclass
class Results:
    """Everything a run found."""

    outcomes: list[Outcome] = dataclasses.field(default_factory=list)
    calls: dict[str, _CALLS] = dataclasses.field(default_factory=dict)  # per entry
    seconds: float = 0.0


class _Worker:
    """One process, restarted as needed."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.process: subprocess.Popen[bytes] | None = None
        self.log = tempfile.TemporaryFile()  # noqa: SIM115 (closed by stop)
        self._buffer = b""

    def start(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", **self.settings.environment}
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        command = [sys.executable, "-X", "faulthandler", "-m", "tests.ops.worker", self.settings.for_worker()]
        self.log.seek(0)
        self.log.truncate()
        self._buffer = b""
        self.process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log
        )

    def send(self, task: dict[str, Any]) -> None:
        if self.process is None or self.process.poll() is not None:
            self.start()
            if self.receive(_START_TIMEOUT) is None:
                raise RuntimeError(f"a worker did not start: {self.death()}")
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, timeout: float | None = None) -> dict[str, Any] | None:
        """The next message; None when the process died or made no progress in time."""
        assert self.process is not None
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], timeout or self.settings.timeout)
            data = os.read(descriptor, 1 << 16) if ready else b""
            if not data:
                return None
            self._buffer += data
        line, self._buffer = self._buffer.split(b"\n", 1)
        return dict(json.loads(line))

    def death(self) -> str:
        """End the process and say how it ended."""
        assert self.process is not None
        hung = self.process.poll() is None and not self._ended()
        if hung:
            self.process.kill()
        code = self.process.wait()
        self.log.seek(0)
        text = self.log.read().decode(errors="replace").partition("Extension modules:")[0]
        tail = " | ".join(line.strip() for line in text.splitlines()[-14:])
        if hung:
            return f"HANG: no progress for {self.settings.timeout:g} s; stderr: {tail}"
        return f"CRASH: exit status {code}; stderr: {tail}"

    def _ended(self) -> bool:
        assert self.process is not None
        try:
            self.process.wait(timeout=5)  # a dying process closes its pipe a little before it is gone
            return True
        except subprocess.TimeoutExpired:
            return False

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            assert self.process.stdin is not None
            self.process.stdin.close()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.log.close()


class Pool:
    """Runs tasks on `settings.jobs` workers."""

    def __init__(self, settings: Settings, on_task: Callable[[str, list[Outcome]], None] | None = None) -> None:
        self.settings, self._on_task = settings, on_task
        self.results = Results()
        self._lock = threading.Lock()
        self._error: Exception | None = None

    def run(self, tasks: list[dict[str, Any]]) -> Results:
        started = time.monotonic()
        todo: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        for task in tasks:
            todo.put(task)
        threads = [threading.Thread(target=self._serve, args=(todo,)) for _ in range(self.settings.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self._error is not None:
            raise self._error
        self.results.seconds = time.monotonic() - started
        return self.results

    def _serve(self, todo: queue.SimpleQueue[dict[str, Any]]) -> None:
        worker = _Worker(self.settings)
        try:
            while self._error is None:
                self._run_one(worker, todo.get_nowait())
        except queue.Empty:
            pass
        except Exception as error:
            self._error = error
        finally:
            worker.stop()

    def _run_one(self, worker: _Worker, task: dict[str, Any]) -> None:
        found: list[Outcome] = []
        crashes = 0
        while True:
            begun, remaining, calls = self._attempt(worker, task, found)
            if calls is not None:
                break
            crashes += 1
            text = worker.death()
            if begun is None:
                raise RuntimeError(f"a worker died before its first check ({task['name']}): {text}")
            op, dtype, variant = begun
            found.append(Outcome(op, dtype, variant, 1, 1, text[:1200]))
            if not _without(task, dtype, variant, remaining) or crashes > 20:
                break
        with self._lock:
            self.results.outcomes.extend(found)
            self.results.calls[task["name"]] = calls or {}
        if self._on_task is not None:
            self._on_task(task["name"], found)

    def _attempt(
        self, worker: _Worker, task: dict[str, Any], found: list[Outcome]
    ) -> tuple[tuple[str, str, str] | None, list[str], _CALLS | None]:
        """Run the task until it is done (calls are returned) or the worker is gone (what it did last is returned)."""
        remaining = list(task["dtypes"])
        begun: tuple[str, str, str] | None = None
        try:
            worker.send(task)
        except BrokenPipeError:
            return begun, remaining, None
        while (message := worker.receive()) is not None:
            if "begin" in message:
                op, dtype, variant = message["begin"]
                begun = (op, dtype, variant)
            elif "outcomes" in message:
                found.extend(Outcome.from_dict(row) for row in message["outcomes"])
                remaining = [dtype for dtype in remaining if dtype != message["dtype"]]
            else:
                return begun, remaining, {(op, route): count for op, route, count in message["calls"]}
        return begun, remaining, None


def _without(task: dict[str, Any], dtype: str, variant: str, remaining: list[str]) -> bool:
    """Change the task so that it goes on behind the check that crashed. False when nothing is left."""
    if dtype == NO_DTYPE:
        return False
    task["dtypes"] = remaining
    skip = task.setdefault("skip", {}).setdefault(dtype, [])
    if variant == "samples":
        task["dtypes"] = [other for other in remaining if other != dtype]
    else:
        skip.extend(FORWARD_VARIANTS if variant in ("forward", "strides", "views") else [variant])
    return True
