# SPDX-License-Identifier: Apache-2.0
"""What settings do, on the simulated chip."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.helpers import run_python, succeed

ROUTES = """
import torch, torch_fl
a, b = torch.randn(8, 8), torch.randn(8, 8)
def routes(op, call=lambda x, y: x @ y):
    torch_fl.reset_counters()
    torch.testing.assert_close(call(a.to("fl"), b.to("fl")).cpu(), call(a, b))
    for row in torch_fl.counters().where(op=op):
        print(row.route, "|", row.reason)
"""


def test_a_route_is_forced_for_one_operator() -> None:
    code = """
routes("aten::mm")
with torch_fl.config(**{"route.aten::mm": "portable"}):
    routes("aten::mm")
    print(*(row.routes for row in torch_fl.query_op("aten::mm").rows if row.name == "aten::mm"))
with torch_fl.config(**{"route.aten::mm": "host"}):
    routes("aten::mm")
    routes("aten::relu", lambda x, y: x.relu())
with torch_fl.config(**{"route.aten::mm": "kernel"}):
    routes("aten::mm")
routes("aten::mm")
"""
    assert succeed(ROUTES + code).splitlines() == [
        "kernel | the chip's kernel",
        "portable | the portable kernel: the setting route.aten::mm is portable",
        "('portable', 'host')",
        "host | the setting route.aten::mm is host",
        "kernel | the chip's kernel",
        "kernel | the chip's kernel",
        "kernel | the chip's kernel",
    ]


def test_a_route_of_one_overload_and_of_in_place_forms() -> None:
    code = """
torch_fl.set_config("route.aten::add.Tensor", "host")
routes("aten::add", lambda x, y: x + y)
torch_fl.set_config("route.aten::add.Tensor", None)
torch_fl.set_config("route.aten::add_", "host")
routes("aten::add_", lambda x, y: x.clone().add_(y))
"""
    lines = succeed(ROUTES + code).splitlines()
    assert lines == ["host | the setting route.aten::add.Tensor is host", "host | the setting route.aten::add_ is host"]


def test_a_composed_operator_goes_to_the_host_as_a_whole() -> None:
    code = """
op = "aten::native_group_norm"
call = lambda x, y: torch.native_group_norm(x.reshape(1, 8, 8), None, None, 1, 8, 8, 2, 1e-5)[0]
with torch_fl.config(**{f"route.{op}": "host"}):
    routes(op, call)
"""
    assert succeed(ROUTES + code).splitlines() == ["host | the setting route.aten::native_group_norm is host"]


def test_a_forced_route_and_strict_mode_name_the_setting() -> None:
    code = """
torch_fl.set_config("fallback", "deny")
try:
    torch.relu(torch.ones(2, device="fl"))
except torch_fl.UnsupportedOpError as error:
    print(error)
"""
    output = succeed(ROUTES + code, TORCH_FL_ROUTE="relu=host")
    assert "aten::relu cannot run on chip 'sim' (fl:0): the setting route.aten::relu is host." in output


def test_high_precision_takes_the_portable_kernels() -> None:
    code = """
torch_fl.set_precision("high")
print(torch.get_float32_matmul_precision())
routes("aten::mm")
torch_fl.set_precision("default")
print(torch.get_float32_matmul_precision())
routes("aten::mm")
"""
    assert succeed("import torch; torch.set_float32_matmul_precision('medium')" + ROUTES + code).splitlines() == [
        "highest",
        "portable | the portable kernel: the setting precision is high",
        "medium",
        "kernel | the chip's kernel",
    ]


def test_high_precision_keeps_kernels_without_a_portable_one() -> None:
    code = "torch_fl.set_precision('high')\nroutes('aten::mm')"
    assert succeed(ROUTES + code, SIMCHIP_HIDE_COMPILER="1").splitlines() == ["kernel | the chip's kernel"]


def test_the_pool_has_a_limit() -> None:
    code = """
import torch, torch_fl
MB = 1 << 20
x = torch.empty(20 * MB, dtype=torch.uint8, device="fl")
try:
    torch.empty(20 * MB, dtype=torch.uint8, device="fl")
except torch.OutOfMemoryError as error:
    print(error)
del x
y = torch.empty(30 * MB, dtype=torch.uint8, device="fl")  # the cache is emptied first
del y
torch_fl.set_config("memory_pool_size", 0)
tensors = [torch.empty(20 * MB, dtype=torch.uint8, device="fl") for _ in range(4)]
del tensors
print(torch.fl.memory_reserved() >= 80 * MB)
torch_fl.set_config("memory_pool_size", 32)
print(torch.fl.memory_reserved() <= 32 * MB)
"""
    first, *rest = succeed(code, TORCH_FL_MEMORY_POOL_SIZE="32").splitlines()
    assert "out of memory. Tried to allocate 20.00 MiB" in first
    assert "(the setting memory_pool_size lets torch-fl hold 32.00 MiB of it)" in first
    assert rest == ["True", "True"]


@pytest.mark.parametrize(("setting", "where"), [("0", "relu aten::relu"), ("1", "synchronize")])
def test_errors_surface_where_they_happen_without_asynchrony(setting: str, where: str) -> None:
    code = """
import torch
x = torch.ones(1 << 16, device="fl")
try:
    step = "relu"
    torch.relu(x)
    step = "synchronize"
    torch.fl.synchronize()
except torch.AcceleratorError as error:
    print(step, str(error).partition("(")[0])
    print(error)
"""
    environment = {"SIMCHIP_FAIL_KERNEL": "aten::relu", "SIMCHIP_SLOW_STREAM_US": "20000", "SIMCHIP_INLINE": "0"}
    output = succeed(code, TORCH_FL_ASYNC_EXECUTION=setting, **environment)
    assert output.startswith(where), output
    assert "kernel aten::relu failed on device 0 (injected fault)" in output


def test_synchronous_execution_computes_the_same() -> None:
    code = """
import torch, torch_fl
torch_fl.set_config("async_execution", False)
a = torch.randn(32, 32)
x = a.to("fl", non_blocking=True)
y = torch.zeros_like(x)
y[::2, 1:] = (x @ x).relu()[::2, 1:]
b = torch.zeros_like(a)
b[::2, 1:] = (a @ a).relu()[::2, 1:]
torch.testing.assert_close(y.cpu(), b)
"""
    succeed(code)


def test_the_log_level_changes_what_is_told() -> None:
    code = """
import torch_fl
"""
    quiet = run_python(code, TORCH_FL_ADD_PLUGIN_PATH="/no/such/plugin.so")
    told = run_python(code, TORCH_FL_ADD_PLUGIN_PATH="/no/such/plugin.so", TORCH_FL_LOG_LEVEL="info")
    assert "is skipped" not in quiet.stderr
    assert "torch_fl info: the plugin /no/such/plugin.so (TORCH_FL_ADD_PLUGIN_PATH) is skipped" in told.stderr


# ---- Devices -----------------------------------------------------------------------------------------------------

NAMES = """
import torch, torch_fl
print([device.name[-1] for device in torch_fl.list_devices()], torch.fl.device_count(), torch.fl.is_available())
for i in range(torch.fl.device_count()):
    x = torch.ones(3, device=f"fl:{i}") + 1
    assert x.device.index == i and x.sum().item() == 6
"""


@pytest.mark.parametrize(
    ("visible", "names"),
    [("2,0", "['2', '0'] 2 True"), ("sim:1", "['1'] 1 True"), ("fl:1,sim:0", "['1', '0'] 2 True")]
    + [("sim", "['0', '1', '2'] 3 True"), ("", "[] 0 False")],
)
def test_visible_devices_are_chosen_and_renumbered(visible: str, names: str) -> None:
    output = succeed(NAMES, TORCH_FL_VISIBLE_DEVICES=visible, SIMCHIP_DEVICES="3")
    assert output.strip() == names


def test_hidden_chips_are_reported() -> None:
    code = "import torch_fl; print(*torch_fl.list_plugins()); print(torch_fl.query_op('relu'))"
    output = succeed(code, TORCH_FL_VISIBLE_DEVICES="")
    assert "loaded as sim: its devices are hidden: visible_devices does not name them" in output
    assert "no chip is loaded" in output


@pytest.mark.parametrize(
    ("visible", "message"),
    [
        ("7", "TORCH_FL_VISIBLE_DEVICES: no device '7' (devices: fl:0 (sim), fl:1 (sim))"),
        ("smi", "TORCH_FL_VISIBLE_DEVICES: no device 'smi'; did you mean 'sim'?"),
        ("-1", "no device '-1'"),
        ("sim,0", "'0' names the device fl:0 a second time"),
        ("0,", "has nothing beside a comma"),
    ],
)
def test_visible_devices_that_cannot_be(visible: str, message: str) -> None:
    result = run_python("import torch_fl", TORCH_FL_VISIBLE_DEVICES=visible, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert result.returncode == 1
    assert f"ConfigError: {message}" in result.stderr or message in result.stderr
    result = run_python("import torch; print(torch.ones(1).item())", TORCH_FL_VISIBLE_DEVICES=visible)
    assert result.stdout.strip() == "1.0"
    assert "torch_fl is installed but inactive" in result.stderr


def test_an_excluded_device_is_refused_and_numbers_stay() -> None:
    code = """
import torch, torch_fl
torch_fl.exclude_device("fl:0")
try:
    torch.ones(1, device="fl:0")
except RuntimeError as error:
    print(error)
print(torch.ones(1, device="fl:1").device, torch_fl.get_config("exclude_devices"))
try:
    torch_fl.exclude_device(1)
except torch_fl.ConfigError as error:
    print(error)
print(torch_fl.get_config("exclude_devices"))
torch_fl.set_config("exclude_devices", ())
print(torch.ones(1, device="fl:0").device)
"""
    refused, *rest = succeed(code).splitlines()
    assert refused.startswith("sim device fl:0 is excluded: the setting exclude_devices names it")
    assert rest[0] == "fl:1 ('fl:0',)"
    assert "the device fl:1 is in use" in rest[1]
    assert rest[2:] == ["('fl:0',)", "fl:0"]


def test_the_default_device_is_what_fl_means() -> None:
    code = """
import threading, torch, torch_fl
torch_fl.set_default_device("sim:1")
print(torch.ones(1, device="fl").device, torch.fl.current_device())
thread = threading.Thread(target=lambda: print(torch.ones(1, device="fl").device))
thread.start()
thread.join()
try:
    torch_fl.set_default_device(5)
except torch_fl.ConfigError as error:
    print(error, torch_fl.get_config("default_device"))
"""
    lines = succeed(code).splitlines()
    assert lines[:2] == ["fl:1 1", "fl:1"]
    assert lines[2].startswith("no device '5'")
    assert lines[2].endswith("sim:1")
    output = succeed("import torch; print(torch.ones(1, device='fl').device)", TORCH_FL_DEFAULT_DEVICE="1")
    assert output.strip() == "fl:1"


AUTO = """
import torch, torch_fl
from torch.utils.data import DataLoader, TensorDataset
def train():  # names no device
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    data = TensorDataset(torch.randn(16, 4), torch.randint(2, (16,)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4, shuffle=True):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    return loss
"""


def test_auto_runs_a_script_that_names_no_device() -> None:
    code = """
torch_fl.set_preferred_device("fl:1")
with torch_fl.auto():
    print(train().device, torch.get_default_device())
    print(torch.ones(1, device="cpu").device, torch.from_numpy(torch.ones(1, device="cpu").numpy()).device)
print(torch.ones(1).device)
held = torch_fl.auto()
print(torch.ones(1).device)
held.close()
print(torch.ones(1).device)
"""
    assert succeed(AUTO + code).splitlines() == ["fl:1 fl:1", "cpu cpu", "cpu", "fl:1", "cpu"]


def test_auto_leaves_workers_of_a_loader_on_the_host() -> None:
    code = """
class Squares(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.tensor(i) ** 2
torch.ones(1, device="fl")
with torch_fl.auto():
    print([batch.device.type for batch in DataLoader(Squares(), batch_size=2, num_workers=1)])
"""
    assert succeed(AUTO + code).splitlines() == ["['cpu', 'cpu']"]


def test_auto_takes_the_first_device_that_is_not_excluded() -> None:
    code = """
torch_fl.exclude_device(0)
with torch_fl.auto():
    print(torch.ones(1).device)
torch_fl.exclude_device(1)
try:
    torch_fl.auto()
except RuntimeError as error:
    print(error)
"""
    first, second = succeed(
        AUTO + code.replace("torch_fl.exclude_device(1)", "torch_fl.set_preferred_device(0)")
    ).splitlines()
    assert first == "fl:1"
    assert "the preferred device 0 is excluded" in second


def test_settings_of_devices_come_from_the_environment() -> None:
    code = "print(torch_fl.auto().device, torch_fl.config_sources()['preferred_device'])"
    output = succeed("import torch_fl\n" + code, TORCH_FL_PREFERRED_DEVICE="fl:1")
    assert output.strip() == "fl:1 TORCH_FL_PREFERRED_DEVICE"


def test_a_file_configures_a_process(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("visible_devices: [1]\nroute: {aten::relu: host}\n")
    code = """
routes("aten::relu", lambda x, y: x.relu())
print(torch.fl.device_count(), torch_fl.list_devices()[0].name)
"""
    lines = succeed(ROUTES + code, TORCH_FL_CONFIG=str(file)).splitlines()
    assert lines == ["host | the setting route.aten::relu is host", "1 Simulated NPU 1"]
