# SPDX-License-Identifier: Apache-2.0
"""The baseline: what is measured, what a model may be, what becomes of cases that fail, and how it is shown."""

from __future__ import annotations

import errno
import io
import itertools
import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console

import torch_fl
from tests.cli.helpers import command
from tests.observe.made_up import results
from torch_fl.cli import bench
from torch_fl.cli.errors import CommandError
from torch_fl.observe import baseline, target
from torch_fl.observe.baseline import cases, measure, table, worker
from torch_fl.observe.baseline.case import Kind
from torch_fl.observe.baseline.results import spread
from torch_fl.observe.baseline.roofline import roof

SERIES = ("device_ns", "host_ns", "total_ns", "loop_ns")
SMALL = {"processes": 2, "repeats": 4, "samples": 2, "sample_seconds": 0.0002}
MODELS = """
import os
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 8)
    def forward(self, x):
        print("forward")  # must not be taken for a message
        return torch.poisson(self.layer(x).exp())  # which has no gradient that anything depends on
def made():
    return Net(), (torch.randn(4, 8),)
def bare():
    return Net()
class Broken(Net):
    def forward(self, x):
        if self.training:
            raise ValueError("no training")
        return self.layer(x)
def broken():
    return Broken(), (torch.randn(4, 8),)
class Crash(Net):
    def forward(self, x):
        if x.device.type != "cpu" and self.training:
            os.abort()
        return self.layer(x)
def crash():
    return Crash(), torch.randn(4, 8)
class Complex(torch.nn.Linear):
    def forward(self, x):
        return x.real.detach().argmax(), super().forward(x)
def wide():
    return Complex(8, 8, dtype=torch.complex64), torch.randn(4, 8, dtype=torch.complex64)
class Chooses(Net):
    def forward(self, x):
        return self.layer(x).argmax(-1)
def chooses():
    return Chooses(), torch.randn(4, 8)
def text():
    return "no module"
def named():
    return Net(), {"x": torch.randn(4, 8)}
class Knows(Net):
    example_input_array = torch.randn(2, 8)
def nothing():
    return Net(), (3,)
def frozen():
    return Net().requires_grad_(False), torch.randn(4, 8)
def raises():
    raise KeyError("weights")
"""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("models") / "some_models.py"
    file.write_text(MODELS)
    return file


@pytest.fixture(scope="module")
def few() -> baseline.Results:
    words = "quick,launch,copies/*1 MiB,operators/mm,operators/relu,matmul/64 float32"
    return baseline.run(set=words, **SMALL)


def test_every_sample_is_kept(few: baseline.Results) -> None:
    case = few.case("operators/mm")
    assert [(round.process, round.round) for round in case.rounds] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    for round in case.rounds:
        assert len(round.device_ns) == len(round.host_ns) == len(round.total_ns) == 2
        assert len(round.loop_ns) == 3
        assert round.calls >= 1
        assert all(0 < device <= total * 1.5 for device, total in zip(round.device_ns, round.total_ns))
    assert len(case.cpu_ns) == 2
    assert case.time().low <= case.time().median <= case.time().high


def test_what_is_known_of_a_case(few: baseline.Results) -> None:
    mm = few.case("operators/mm")
    assert mm.op == "aten::mm"
    assert mm.flops == 2 * 64 * 192 * 192
    assert mm.bytes == 4 * (64 * 192 + 192 * 192 + 64 * 192)
    assert mm.memory_peak >= mm.bytes
    assert [(route.op, route.route, route.calls) for route in mm.routes] == [("aten::mm", "kernel", 1)]
    for direction in ("h2d", "d2h", "d2d"):
        copy = few.case(f"copies/{direction} 1 MiB")
        assert (copy.direction, copy.bytes_copied) == (direction, 1 << 20)
    assert not few.case("copies/h2d 1 MiB").cpu_ns
    assert few.case("launch/add of one element").series == "host_ns"
    assert few.timer == "events of the device"


def test_the_run_says_what_it_ran_on(few: baseline.Results) -> None:
    device = torch_fl.list_devices()[0]
    assert (few.chip, few.device.name, few.device.total_memory) == (
        device.chip,
        device.name,
        device.memory,
    )
    assert few.environment.versions["torch"] == torch.__version__
    assert few.environment.threads["torch"] >= 1
    assert "TORCH_FL_PLUGIN_PATH" in few.environment.variables
    assert "aten::mm" in {row.op for row in few.registered}


def test_files_bring_back_what_was_measured(few: baseline.Results, tmp_path: Path) -> None:
    few.write(tmp_path / "folder" / "results.json")
    assert baseline.read(tmp_path / "folder" / "results.json") == few


@pytest.fixture(scope="module")
def made(models: Path) -> tuple[baseline.Results, list[baseline.Step]]:
    steps: list[baseline.Step] = []
    return baseline.run(model=f"{models}:made", watch=steps.append, processes=1, repeats=1, samples=1), steps


def test_steps_are_told_up_to_the_last(made: tuple[baseline.Results, list[baseline.Step]]) -> None:
    _, steps = made
    assert steps[0].text == "starting"
    assert all(a.done <= b.done for a, b in itertools.pairwise(steps))
    assert (steps[-1].done, steps[-1].total) == (2, 2)


def test_a_model_of_a_file_is_measured_and_its_host_share_told(
    made: tuple[baseline.Results, list[baseline.Step]],
) -> None:
    case = made[0].case("some_models/forward")
    assert case.kind is Kind.MODEL
    assert not case.error
    assert 0 < case.host_share_of_calls() < 1
    assert 0 < case.host_share_of_time < 1
    assert {route.route for route in case.routes if route.op == "aten::poisson"} == {"host"}
    assert case.flops == 2 * 4 * 8 * 8
    assert case.memory_peak > 0


def test_a_step_derives_the_first_result_that_has_a_gradient(models: Path) -> None:
    found = baseline.run(model=f"{models}:wide", processes=1, repeats=1, samples=1)
    assert [case.error for case in found.cases] == ["", ""]
    found = baseline.run(model=f"{models}:chooses", processes=1, repeats=1, samples=1)
    assert [case.error for case in found.cases] == ["", "ValueError: the model returned no tensor that has a gradient"]


def test_a_case_that_raises_is_told_and_the_rest_goes_on(models: Path) -> None:
    found = baseline.run(model=f"{models}:broken", processes=1, repeats=2, samples=1, cpu=False)
    assert found.case("some_models/training step").error == "ValueError: no training"
    assert len(found.case("some_models/forward").rounds) == 2


def test_a_case_that_ends_the_process_is_told_and_the_rest_goes_on(models: Path) -> None:
    found = baseline.run(model=f"{models}:crash", processes=1, repeats=2, samples=1, cpu=False)
    assert found.case("some_models/training step").error == "crash: SIGABRT"
    assert len(found.case("some_models/forward").rounds) == 2


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("{file}:mad", "has no 'mad'; did you mean 'made'?"),
        ("{file}:bare", "a module without inputs: have it return (module, inputs)"),
        ("{file}:nothing", "there is no tensor among the inputs"),
        ("{file}:text", "gave str, expected a torch.nn.Module"),
        ("{file}:raises", "raises raised KeyError: 'weights' ("),
        ("{file}", "expected package.module:callable or file.py:callable"),
        ("no_such_package:f", "a file is named with its .py"),
        ("none.py:f", "none.py: no such file"),
    ],
)
def test_models_that_are_none(models: Path, model: str, message: str) -> None:
    with pytest.raises(target.ModelError) as error:
        target.load(model.format(file=models))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["made", "crash", "named", "Knows"])
def test_inputs_may_be_given_in_any_form(models: Path, name: str) -> None:
    module, args, named = target.load(f"{models}:{name}")
    (x,) = (*args, *named.values())
    assert module.eval()(*args, **named).shape == (x.shape[0], 8)


def test_a_model_that_does_not_train_has_no_such_case(models: Path) -> None:
    names = {}
    for model in ("made", "frozen"):
        settings = {"model": f"{models}:{model}", "device": "fl:0", "process": 0, "seed": 0, "skip": []}
        measuring = worker.Worker({**settings, "samples": 1, "sample_seconds": 0.001}, channel=None)
        names[model] = [case.name for case in measuring.cases()]
    assert names == {"made": ["some_models/forward", "some_models/training step"], "frozen": ["some_models/forward"]}


def test_wrong_options_are_told_of() -> None:
    with pytest.raises(baseline.BenchError, match=r"no device 'fl:9' \(devices: fl:0"):
        baseline.run(device="fl:9", processes=1)
    with pytest.raises(baseline.BenchError, match="repeats is 0"):
        baseline.run(repeats=0)


def test_the_standard_set_has_what_it_should() -> None:
    everything = cases.standard("standard", ["float32", "float16", "int8"])
    names = [case.name for case in everything]
    assert len(names) == len(set(names))
    groups = {name.partition("/")[0] for name in names}
    assert groups == set("launch copies operators matmul convolution attention resnet18 bert gpt2".split())
    assert {f"matmul/{n} {dtype}" for n in (64, 2048) for dtype in ("float32", "float16")} <= set(names)
    assert not any("bfloat16" in name for name in names)
    assert len({case.op for case in everything if case.name.startswith("operators/")}) >= 40
    assert len(cases.standard("quick", ["float32"])) < len(names)


def test_words_choose_groups_and_patterns() -> None:
    chosen = [case.name for case in cases.selected("quick,launch,operators/*pool*", ["float32"])]
    assert chosen == ["launch/add of one element", "operators/max_pool2d_with_indices", "operators/avg_pool2d"]
    with pytest.raises(cases.UnknownSet, match="no set, group or case 'matmull'; did you mean 'matmul'"):
        cases.selected("matmull", ["float32"])


def test_every_case_runs_on_the_cpu() -> None:
    """Those of the quick set; on the device they run in the test of the command."""
    for case in cases.standard("quick", ["float32"]):
        with torch.set_grad_enabled(case.gradients):
            case.make(torch.device("cpu")).call()


def test_the_operators_are_named_as_the_router_names_them() -> None:
    """What a case says it is about is among the operators that it calls."""
    for case in cases.selected("quick,operators", ["float32"]):
        work = case.make(torch.device("fl:0"))
        torch_fl.reset_counters()
        with torch.no_grad():
            work.call()
        called = {row.name for row in torch_fl.counters()}
        assert case.op in called or case.op in _NOT_COUNTED or f"{case.op}.stable" in called, (case.name, called)


_NOT_COUNTED = ("aten::copy_", "aten::clone", "aten::scaled_dot_product_attention")


def test_roofs() -> None:
    def share(flops: int, bytes: int, peaks: tuple[float, float], dtype: str = "float32") -> tuple[Any, str]:
        content = results(1, cases=1).model_dump(mode="json")
        content["device"] |= {"peak_flops": peaks[0], "peak_bandwidth": peaks[1]}
        content["cases"][0] |= {"flops": flops, "bytes": bytes, "dtype": dtype}
        content["cases"][0]["rounds"] = [{"process": 0, "round": 0, "calls": 1, **dict.fromkeys(SERIES, (1000.0,))}]
        found = baseline.Results.model_validate(content)
        under = roof(found.cases[0], found)
        return under.share, under.bound

    # In 1 us.
    assert share(1_000_000, 100_000, (2e12, 1e12)) == (pytest.approx(0.5), "compute")
    assert share(1_000_000, 800_000, (2e12, 1e12)) == (pytest.approx(0.8), "memory")
    assert share(1_000_000, 800_000, (0, 0)) == (None, "")
    assert share(1_000_000, 100_000, (2e12, 0), "float16") == (None, "")


@pytest.mark.parametrize(("direction", "moved", "share"), [("h2d", 1, None), ("d2h", 1, None), ("d2d", 2, 0.2)])
def test_copies_under_the_roof_of_memory(direction: str, moved: int, share: float | None) -> None:
    """Within the device each byte is read and written; what lies between host and device has no peak that is known."""
    content = results(1, cases=1).model_dump(mode="json")
    content["device"]["peak_bandwidth"] = 1e12
    (case,) = content["cases"]
    case |= {"kind": "copy", "bytes_copied": 100_000, "direction": direction}
    case["rounds"] = [{"process": 0, "round": 0, "calls": 1, **dict.fromkeys(SERIES, (1000.0,))}]
    found = baseline.Results.model_validate(content)
    under = roof(found.cases[0], found)
    assert under.bandwidth == pytest.approx(moved * 1e11)
    assert under.share == (None if share is None else pytest.approx(share))
    text = shown(found, 120)
    assert f"{moved * 100}" in text
    assert ("of roof" in text) is (share is not None)
    assert ("what it reads and what it writes" in " ".join(text.split())) is (direction == "d2d")


def test_peaks_reach_python() -> None:
    record, properties = torch_fl.list_devices()[0], torch.fl.get_device_properties(0)
    assert (record.peak_flops, record.peak_bandwidth) == (properties.peak_flops, properties.peak_bandwidth) == (0, 0)


@pytest.mark.parametrize(
    ("nanoseconds", "text"),
    [(0, ""), (1.234, "1.23 ns"), (999.4, "999 ns"), (999.7, "1.00 us"), (12_345, "12.3 us"), (2.5e9, "2.50 s")],
)
def test_times_have_three_digits_and_a_unit(nanoseconds: float, text: str) -> None:
    assert table.duration(nanoseconds) == text


def test_spread_is_of_the_quartiles() -> None:
    assert spread([1, 2, 3, 4, 5]).model_dump() == {"median": 3, "low": 2, "high": 4}
    assert spread([7.0]).relative == spread([]).relative == 0


def shown(found: baseline.Results, width: int) -> str:
    stream = io.StringIO()
    table.show(Console(file=stream, width=width), found)
    text = stream.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    return text


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_and_have_units(few: baseline.Results, width: int) -> None:
    text = shown(few, width)
    assert "until it returns" in text
    assert "GB/s" in text
    assert " us" in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_tables_with_every_column_cut_nothing(width: int) -> None:
    content = results(1, cases=1).model_dump(mode="json")
    content["device"] |= {"peak_flops": 1e12, "peak_bandwidth": 1e11}
    (case,) = content["cases"]
    case |= {"name": "network/training step", "kind": "model", "flops": 10**6, "bytes": 10**6, "cpu_ns": [123456.0] * 3}
    case |= {"memory_peak": 123 << 20, "host_share_of_time": 0.31, "routes": [{"op": "x", "route": "host", "calls": 1}]}
    text = shown(baseline.Results.model_validate(content), width)
    titles = ("training step", "end to end", "device", "CPU", "x CPU", "GFLOP/s", "of roof", "host calls", "host time")
    for word in (*titles, "123 MiB", "100%", "31%", "123 us"):
        assert word in text, word


def test_the_command_measures_writes_and_prints(tmp_path: Path) -> None:
    words = ("--set", "quick,operators/add.Tensor,bert", "--processes", "1", "--repeats", "1", "--no-cpu")
    result = command("bench", *words, "-o", tmp_path / "folder" / "results.json", COLUMNS="80")
    assert result.returncode == 0, result.stderr
    assert "bert" in result.stdout
    assert "training" in result.stdout
    found = baseline.read(tmp_path / "folder" / "results.json")
    assert not found.case("bert/training step").error
    assert found.options.cpu is False
    assert os.listdir(tmp_path / "folder") == ["results.json"]


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, few: baseline.Results) -> list[baseline.Options]:
    """The command finds `few`; the list has what it was asked for."""
    asked: list[baseline.Options] = []

    def run(options: baseline.Options, watch: object) -> baseline.Results:
        asked.append(options)
        if options.set == "standrad":
            raise baseline.BenchError("no set 'standrad'")
        return few

    monkeypatch.setattr(baseline, "run", run)
    return asked


def test_json_of_the_command_is_what_it_writes(
    few: baseline.Results, measured: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench.main(baseline.Options(), tmp_path / "results.json", json=True) == 0
    assert (
        baseline.Results.model_validate_json(capsys.readouterr().out) == few == baseline.read(tmp_path / "results.json")
    )


def test_the_command_refuses_what_it_cannot_do(measured: list[baseline.Options], tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no set 'standrad'") as error:
        bench.main(baseline.Options(set="standrad"), None, json=False)
    assert error.value.status == 2
    measured.clear()
    (tmp_path / "file").touch()
    for file, message in (
        (Path("-"), "-: expected the name of a file"),
        (tmp_path, "cannot be written"),
        (tmp_path / "file" / "results.json", "file/results.json: cannot be written: "),
    ):
        with pytest.raises(CommandError, match=message) as error:
            bench.main(baseline.Options(), file, json=True)
        assert error.value.status == 2
    assert not measured  # nothing is measured in vain
    assert not Path("-").exists()


def test_a_file_that_cannot_be_written_whole_stays_as_it_was(
    few: baseline.Results, measured: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "results.json"
    file.write_text("before")

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(CommandError, match=r"results\.json: cannot be written: No space left on device"):
        bench.main(baseline.Options(), file, json=False)
    assert file.read_text() == "before"
    assert os.listdir(tmp_path) == ["results.json"]


def test_a_chip_without_kernels_runs_everything_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCHIP_HIDE_KERNELS", "1")  # which the measuring process reads
    found = baseline.run(set="quick,operators/relu", processes=1, repeats=1, samples=1, cpu=False)
    case = found.case("operators/relu")
    assert (case.host_share_of_calls(), case.routes[0].route) == (1.0, "host")
    assert case.host_share_of_time > 0.5


@pytest.mark.parametrize("nanoseconds", [-1.0, math.nan, math.inf])
def test_times_that_events_cannot_mean_fail_the_case(nanoseconds: float) -> None:
    class Odd:
        def sample(self, work: object, calls: int) -> tuple[float, float, float]:
            return nanoseconds, 1.0, 1.0

    (case,) = cases.selected("launch", ["float32"])
    with pytest.raises(RuntimeError, match="expected a time between the device's events, found"):
        measure.sample_round(case, case.make(torch.device("cpu")), measure.Plan(1, 1), Odd())
