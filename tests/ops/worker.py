# SPDX-License-Identifier: Apache-2.0
"""A process that runs tasks for the pool: JSON lines in on stdin, JSON lines out on stdout.

Before each check it says what it is about to do, so that the parent can tell what crashed or hung.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import warnings
from typing import Any

import torch

from tests.harness import device
from tests.ops import catalogue
from tests.ops.engine import NO_DTYPE, Options, PairCheck, check_errors
from tests.ops.outcome import Outcome
from torch_fl._channel import Channel


class TaskChannel(Channel):
    """Also says what comes next, once."""

    _last: tuple[str, str, str] | None = None

    def begin(self, op: str, dtype: str, variant: str) -> None:
        if (op, dtype, variant) != self._last:
            self._last = (op, dtype, variant)
            self.send(begin=self._last)
            _plant_fault(":".join(self._last))


def _plant_fault(check: str) -> None:
    """For tests of the pool: TORCH_FL_TEST_FAULT="op:dtype:variant=kill,..." makes this process die or hang there."""
    for item in filter(None, os.environ.get("TORCH_FL_TEST_FAULT", "").split(",")):
        where, what = item.split("=")
        if where == check and what == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if where == check and what == "sleep":
            time.sleep(3600)


def run_task(task: dict[str, Any], options: Options, channel: TaskChannel) -> None:
    info = catalogue.items(task["kind"])[task["index"]]
    skip = task.get("skip", {})  # dtype -> variants that crashed
    for dtype in [*task["dtypes"], NO_DTYPE]:
        dropped = set(skip.get(dtype, ()))
        wanted = [variant for variant in options.variants if variant not in dropped]
        mine = Options(options.device, wanted, options.max_samples, options.max_variant_samples, on_begin=channel.begin)
        channel.begin(task["name"], dtype, "samples")
        channel.send(
            outcomes=[outcome.as_dict() for outcome in _outcomes(task["kind"], info, dtype, mine)], dtype=dtype
        )


def _outcomes(kind: str, info: Any, dtype: str, options: Options) -> list[Outcome]:
    if dtype == NO_DTYPE:
        return check_errors(info, options) if kind == "op" else []
    if kind == "op":
        return PairCheck(info, catalogue.as_dtype(dtype), options).run()
    if kind == "module":
        from tests.ops.modules import check_module

        return check_module(info, catalogue.as_dtype(dtype), options)
    from tests.ops.optimizers import check_optimizer

    return check_optimizer(info, catalogue.as_dtype(dtype), options)


def main() -> None:
    channel = TaskChannel()
    settings = json.loads(sys.argv[1])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    module = device.load()
    if module is not None and settings["policy"] != "allow":
        module.set_config("fallback", settings["policy"])
    options = Options(device.DEVICE, settings["variants"], settings["max_samples"], settings["max_variant_samples"])
    catalogue.ops()  # takes seconds to import
    channel.send(ready=True)
    for line in sys.stdin:
        task = json.loads(line)
        device.reset_counters()
        run_task(task, options, channel)
        calls = [[op, route, count] for (op, route), count in device.route_calls().items()]
        channel.send(done=task["name"], calls=calls)


if __name__ == "__main__":
    main()
