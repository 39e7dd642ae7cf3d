# SPDX-License-Identifier: Apache-2.0
"""A process that checks operators for the pool: JSON lines in on stdin, JSON lines out on stdout.

It says what it is about to do before each case, so that the parent can tell what crashed or hung.
"""

from __future__ import annotations

import json
import os
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import torch

import torch_fl
from torch_fl import _load
from torch_fl._channel import Channel
from torch_fl.cli import developing
from torch_fl.conformance import perf
from torch_fl.conformance.case import Case
from torch_fl.conformance.execute import Answer, Executor, on_cpu, on_cpu_strided
from torch_fl.conformance.forms import forms_of
from torch_fl.conformance.operators import OPERATORS
from torch_fl.conformance.targets import OPINFO, Selection, as_task, targets
from torch_fl.conformance.verdict import Finding, Row, summarize

QUICK_CASES = 3
CASES_WITH_FORMS = 2
LOST = 3  # exit status after a lost device


class CaseChannel(Channel):
    """A channel that says of each case when it begins."""

    def begin(self, case: str) -> None:
        """Say what comes next."""
        self.send(begin=case)


class Worker:
    """Checks operators on one chip."""

    def __init__(self, settings: dict[str, Any], channel: CaseChannel) -> None:
        self.settings, self.channel = settings, channel
        self.index = device_index(settings["chip"])
        self.device = torch.device(_load.DEVICE_TYPE, self.index)
        self.executor = Executor(self.device, settings["routes"])
        torch.fl.set_device(self.index)  # type: ignore[attr-defined]
        if settings["guard_bytes"] and settings["mode"] in ("test", "grad"):
            _load.core().set_guard_bytes(settings["guard_bytes"])

    def check(self, op: str, dtypes: list[str]) -> None:
        """Check an operator in some types; send a row for each."""
        for dtype in dtypes:
            self.channel.begin("")
            self.channel.send(row=self._row(op, dtype).as_dict())
            if _load.core().devices()[self.index]["lost"]:
                sys.exit(LOST)

    def _row(self, op: str, dtype: str) -> Row:
        mode = self.settings["mode"]
        if mode == "perf":
            return perf.measure(op, dtype, self._perf_cases(op, dtype), self.executor)
        return summarize(op, dtype, mode, self._findings(op, dtype))

    def _findings(self, op: str, dtype: str) -> Iterator[Finding]:
        if op.startswith(OPINFO):
            from torch_fl.conformance.opinfo import findings

            yield from findings(op, dtype, self.executor, self.settings["quick"], self.channel.begin)
            return
        check = {"test": self._test, "grad": self._grad, "support": self._support}[self.settings["mode"]]
        for i, case in enumerate(self._cases(op, dtype)):
            yield from check(case, i)
            if self.settings["mode"] == "support":
                break

    def _cases(self, op: str, dtype: str) -> Iterator[Case]:
        cases = OPERATORS[op].cases(self.settings["seed"], getattr(torch, dtype))
        return _until_refused(islice(cases, QUICK_CASES if self.settings["quick"] else None))

    def _perf_cases(self, op: str, dtype: str) -> Iterator[Case]:
        for case in OPERATORS[op].perf_cases(self.settings["seed"], getattr(torch, dtype)):
            yield self._begun(case)

    def _begun(self, case: Case) -> Case:
        self.channel.begin(str(case))
        return case

    def _test(self, case: Case, number: int) -> Iterator[Finding]:
        expected = on_cpu(case)
        if expected is None:
            return
        yield self.executor.check(self._begun(case), expected)
        if number >= (1 if self.settings["quick"] else CASES_WITH_FORMS):
            return
        for form in forms_of(case, expected.outputs):
            answer = _expected_of(form, expected)
            if answer is not None:
                yield self.executor.check(self._begun(form), answer)

    def _grad(self, case: Case, number: int) -> Iterator[Finding]:
        if number < QUICK_CASES:
            finding = self.executor.check_gradient(self._begun(case))
            if finding is not None:
                yield finding

    def _support(self, case: Case, number: int) -> Iterator[Finding]:
        yield self.executor.try_out(self._begun(case))


def _expected_of(form: Case, plain: Answer) -> Answer | None:
    return on_cpu_strided(form, plain) if form.form in ("strided", "transposed") else on_cpu(form)


def _until_refused(cases: Iterator[Case]) -> Iterator[Case]:
    """Stop where the CPU, asked to prepare a case, has no kernel for the type."""
    try:
        yield from cases
    except (RuntimeError, NotImplementedError, ValueError):
        return


def device_index(chip: str) -> int:
    """Return the index of the chip's first device."""
    for record in torch_fl.list_devices():
        if record.chip == chip:
            return record.index
    raise LookupError(f"no device of chip {chip!r}")


def _environment(chip: str) -> dict[str, Any]:
    """What the report says about the chip."""
    index = device_index(chip)
    device = _load.core().devices()[index]
    loaded = [record.path for record in torch_fl.list_plugins() if record.loaded and record.chip == chip]
    plugins = [{"path": path} for path in dict.fromkeys(file for path in loaded for file in (path, *_library(path)))]
    keep = {key: value for key, value in device.items() if key not in ("opened", "lost", "local_index")}
    return {"device": keep, "plugins": plugins, "skipped": _skipped()}


def _library(path: str) -> list[str]:
    """The library that a descriptor names, where it was mapped from."""
    if not path.endswith((".yaml", ".yml")):
        return []
    named = re.search(r"^runtime_so:\s*(\S+)", Path(path).read_text(), re.MULTILINE)
    if named is None:
        return []
    stem = os.path.basename(named[1].rstrip("}").rpartition(":-")[2]).strip("\"'")
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sorted({line.split(maxsplit=5)[5] for line in lines if os.path.basename(line).startswith(stem)})


def _skipped() -> list[str]:
    return [str(record) for record in torch_fl.list_plugins() if not record.loaded]


def _answer_plan(settings: dict[str, Any], channel: CaseChannel) -> None:
    """Tell the parent, which loads no chip itself, what there is to do."""
    chips = sorted({record.chip for record in torch_fl.list_devices()})
    loaded = [(record.chip, record.path) for record in torch_fl.list_plugins() if record.loaded]
    chip = settings["chip"] or _added_chip(loaded, settings["path"])
    if chip not in chips:
        channel.send(chips=chips, skipped=_skipped())
        return
    selection = Selection(
        chip,
        settings["mode"],
        tuple(settings["routes"]),
        settings["ops"],
        tuple(settings["dtypes"]),
        settings["quick"],
        settings["opinfo"],
    )
    todo = targets(selection)
    channel.send(
        chip=chip,
        tasks=[as_task(target) for target in todo if target.dtypes],
        untested=[[target.op, dtype, why] for target in todo for dtype, why in target.untested.items()],
        environment=_environment(chip),
    )


def _added_chip(loaded: list[tuple[str, str]], path: str) -> str:
    """The chip that came from a path."""
    real = os.path.realpath(path)
    for chip, file in loaded:
        found = os.path.realpath(file)
        if path and (found == real or found.startswith(real + os.sep)):
            return chip
    return ""


def main() -> None:
    """Serve until stdin ends."""
    channel = CaseChannel()
    settings = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    developing.register()
    if settings.get("plan"):
        _answer_plan(settings, channel)
        return
    worker = Worker(settings, channel)
    channel.send(ready=True)
    for line in sys.stdin:
        task = json.loads(line)
        worker.check(task["op"], task["dtypes"])
        channel.send(done=task["op"])


if __name__ == "__main__":
    main()
