# SPDX-License-Identifier: Apache-2.0
"""A process that measures: settings as JSON in its argument, JSON lines out on stdout.

It says which case it is about to touch, so that the parent knows what crashed.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import platform
import sys
import zlib
from collections.abc import Callable
from typing import Any

import torch

import torch_fl
from torch_fl import _load
from torch_fl._channel import Channel
from torch_fl.cli import developing
from torch_fl.observe import target
from torch_fl.observe.baseline import cases, measure
from torch_fl.observe.baseline.case import Case, Kind, Work
from torch_fl.observe.baseline.results import rounds_of

_CPU = torch.device("cpu")
_TOLD = ("name", "op", "dtype", "bytes_copied", "direction")
_VARIABLES = ("TORCH_FL", "OMP_", "MKL_", "KMP_", "GOMP_")


class BadDevice(ValueError):
    """A device that there is not."""


class Worker:
    """Measures cases on one device, as one of several processes of a run."""

    def __init__(self, settings: dict[str, Any], channel: Channel) -> None:
        self.settings, self.channel = settings, channel
        self.device = _device(settings["device"])
        torch.accelerator.set_device_index(self.device.index)
        self.clock = measure.Clock(self.device)
        self.effort = measure.Effort(settings["samples"], settings["sample_seconds"])
        self.first = settings["process"] == 0
        self.broken: set[str] = set(settings["skip"])

    def cases(self) -> list[Case]:
        """Return what there is to measure."""
        if self.settings["model"]:
            name = self.settings["model"].rpartition("/")[2].rpartition(":")[0].removesuffix(".py")
            torch.manual_seed(self.settings["seed"])  # the same numbers in each process
            module, args, named = target.load(self.settings["model"])
            trains = any(p.requires_grad for p in module.parameters())
            return list(cases.of_module(name, lambda: (copy.deepcopy(module), args, named), trains))
        return cases.selected(self.settings["set"], _load.core().devices()[self.device.index]["dtypes"])

    def run(self, everything: list[Case]) -> None:
        """Measure small cases in turns, then each network by itself: they would not fit beside each other."""
        small = [case for case in everything if case.kind is not Kind.MODEL]
        plans: dict[str, measure.Plan] = {}
        for case in small:
            self._guarded(case, lambda case: plans.update({case.name: self._plan(case, self._made(case))}))
        for number in range(self.settings["rounds"]):
            for case in small:
                self._guarded(case, functools.partial(self._renewed, plans, number))
        for case in everything:
            if case.kind is Kind.MODEL:
                self._guarded(case, self._whole)
        if self.first:  # at the end: the CPU's threads, still awake after their work, would disturb the device's
            for case in everything:
                if case.on_cpu:
                    self._guarded(case, self._on_cpu)

    def _guarded(self, case: Case, action: Callable[[Case], Any]) -> None:
        """A case that fails is told of, once, and left out from then on."""
        if case.name in self.broken:
            return
        self.channel.send(begin=case.name)
        try:
            action(case)
        except Exception as error:
            self.broken.add(case.name)
            text = (str(error).splitlines() or [""])[0]
            self.channel.send(failed=case.name, error=f"{type(error).__name__}: {text}")

    def _made(self, case: Case) -> Work:
        return measure.made(case, self.device, self.settings["seed"])

    def _plan(self, case: Case, work: Work) -> measure.Plan:
        if self.first:
            self.channel.send(facts=case.name, values=measure.facts(case, work, self.clock, self.device))
        return measure.plan(case, work, self.clock, self.effort)

    def _renewed(self, plans: dict[str, measure.Plan], number: int, case: Case) -> None:
        """Sample a small case, made anew at another place in memory."""
        place = f"{self.settings['seed']} {self.settings['process']} {number} {case.name}"
        held = measure.padding(self.device, zlib.crc32(place.encode()))
        self._sample(case, self._made(case), plans[case.name], number)
        del held

    def _whole(self, case: Case) -> None:
        work = self._made(case)
        plan = self._plan(case, work)
        for number in range(rounds_of(case.kind, self.settings["rounds"], self.settings["processes"])):
            self._sample(case, work, plan, number)

    def _on_cpu(self, case: Case) -> None:
        work = measure.made(case, _CPU, self.settings["seed"])
        values: dict[str, Any] = measure.size(case, work)
        if self.settings["cpu"]:
            values["cpu_ns"] = measure.on_cpu(case, work, self.effort)
        self.channel.send(facts=case.name, values=values)

    def _sample(self, case: Case, work: Work, plan: measure.Plan, number: int) -> None:
        values = measure.sample_round(case, work, plan, self.clock)
        place = {"process": self.settings["process"], "round": number}
        self.channel.send(round=case.name, values={**place, **values})


def _device(name: str) -> torch.device:
    """Return the device that a name means; raises BadDevice."""
    known = [f"{_load.DEVICE_TYPE}:{row['index']}" for row in _load.core().devices()]
    full = f"{name}:0" if name == _load.DEVICE_TYPE else name
    if full not in known:
        raise BadDevice(f"no device {name!r} (devices: {', '.join(known) or 'none: `torch-fl doctor` says why'})")
    return torch.device(full)


def about(device: torch.device, clock: measure.Clock) -> dict[str, Any]:
    """Return the chip, the device, what the chip registers, and what all of it ran in."""
    row = _load.core().devices()[device.index]
    registered = torch_fl.registered_ops_summary().chips.get(row["chip"], ())
    operators = sorted((kernel.op, kernel.route, sorted(kernel.dtypes)) for kernel in registered)
    return {
        "chip": row["chip"],
        "device": {**row, **{name: _known(row[name]) for name in ("peak_flops", "peak_bandwidth")}},
        "timer": clock.name,
        "environment": environment(row),
        "registered": [{"op": op, "route": route, "dtypes": dtypes} for op, route, dtypes in operators],
    }


def _known(peak: float) -> float:
    """A peak that is no number is one that the chip does not know."""
    return peak if math.isfinite(peak) and peak > 0 else 0.0


def environment(row: dict[str, Any]) -> dict[str, Any]:
    """Return versions, threads, settings and variables."""
    return {
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "torch_fl": torch_fl.__version__,
            "plugin": row["plugin_version"],
            "driver": row["driver_version"],
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        },
        "cpu": _cpu_name(),
        "threads": {
            "torch": torch.get_num_threads(),
            "cores": os.cpu_count(),
            "allowed_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        },
        "settings": {key: str(value) for key, value in torch_fl.get_config().items()},
        "variables": {key: value for key, value in sorted(os.environ.items()) if key.startswith(_VARIABLES)},
    }


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo") as lines:
            return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    except OSError:
        return platform.processor()


def main() -> int:
    """Measure what the argument asks for; return the exit status."""
    settings = json.loads(sys.argv[1])
    channel = Channel()
    developing.register()
    try:
        worker = Worker(settings, channel)
        everything = worker.cases()
    except (cases.UnknownSet, target.ModelError, BadDevice) as error:
        channel.send(refused=str(error))
        return 2
    rows = [{"kind": case.kind.value, **{name: getattr(case, name) for name in _TOLD}} for case in everything]
    channel.send(about=about(worker.device, worker.clock), cases=rows)
    worker.run(everything)
    channel.send(done=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
