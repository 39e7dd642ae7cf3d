# SPDX-License-Identifier: Apache-2.0
"""Guard bytes round allocations: off by default, told when they change, and told once."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.plugins.helpers import succeed

PROLOGUE = """
import json, torch, torch_fl
core = torch_fl._load.core()
core.set_guard_bytes(100)
x = torch.ones(5, 7, device="fl:0")
"""


def test_a_kernel_that_writes_behind_its_output_is_told_with_place_and_size(faulty: Path) -> None:
    code = (
        PROLOGUE
        + """
y = torch.sqrt(x)
first, again = core.check_guards(), core.check_guards()
print(json.dumps([first, again, y.data_ptr(), y.nbytes, y.tolist() == x.tolist()]))
"""
    )
    first, again, address, size, right = json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(faulty)))
    assert first == [{"device": 0, "address": address, "bytes": size, "first": size, "changed": 4, "freed": False}]
    assert again == []
    assert right


def test_a_write_before_the_start_of_a_tensor_that_is_gone_is_told(faulty: Path) -> None:
    code = PROLOGUE + "torch.ceil(x)\nprint(json.dumps(core.check_guards()))"
    (damage,) = json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(faulty)))
    assert (damage["first"], damage["changed"], damage["freed"]) == (-8, 4, True)


def test_sound_kernels_and_copies_touch_no_guard(faulty: Path) -> None:
    code = (
        PROLOGUE
        + """
y = torch.relu(x)
z = torch.cat([y, x[1:3].mT.contiguous().mT]).sum()  # on the host
y.resize_(40, 9).fill_(3)
x[:, 1] = 2
print(json.dumps(core.check_guards()))
"""
    )
    assert json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(faulty))) == []


def test_guards_are_off_unless_asked_for(faulty: Path) -> None:
    code = """
import json, torch, torch_fl
torch.sqrt(torch.ones(5, 7, device="fl:0"))
print(json.dumps(torch_fl._load.core().check_guards()))
"""
    assert json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=str(faulty))) == []


@pytest.mark.skipif("FL_SIM_LIBRARY" not in os.environ, reason="needs the simulator")
def test_guarded_memory_works_with_streams_views_copy_on_write_and_statistics() -> None:
    code = (
        PROLOGUE
        + """
assert x.data_ptr() % 64 == 0
stream = torch.Stream("fl:0")
with stream:
    y = x @ x.mT
y.record_stream(stream)
stream.synchronize()
lazy = torch._lazy_clone(x)
lazy.add_(1)
before = torch.fl.memory_allocated()
del y, lazy
core.check_guards()
after = torch.fl.memory_allocated()
print(json.dumps([x.sum().item(), core.check_guards(), after < before]))
"""
    )
    values = json.loads(succeed(code, TORCH_FL_PLUGIN_PATH=os.environ["FL_SIM_LIBRARY"]))
    assert values == [35.0, [], True]
