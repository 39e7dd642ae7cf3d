# SPDX-License-Identifier: Apache-2.0
"""torch_fl.profiler.profile: what ran where, when, from which line, and what it cost."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import inspect
import io
import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import torch

import torch_fl
from torch_fl.profiler import GROUP_FIELDS, Profile, Record


def names(profile: Profile) -> list[str]:
    return [record.name for record in profile.records]


def line() -> int:
    frame = inspect.currentframe()
    assert frame is not None
    assert frame.f_back is not None
    return frame.f_back.f_lineno


def test_records_every_call_in_order_with_route_and_time() -> None:
    x = torch.randn(8, 8, device="fl")
    before = time.monotonic_ns()
    with torch_fl.profiler.profile() as p:
        with pytest.raises(RuntimeError, match="still being recorded"):
            _ = p.records
        y = x @ x
        torch.poisson(y.relu())  # the chip has no kernel for it
    after = time.monotonic_ns()
    mm, relu, poisson = p.records
    assert names(p) == ["aten::mm", "aten::relu", "aten::poisson"]
    assert [record.route for record in p.records] == ["kernel", "kernel", "host"]
    assert {(record.chip, record.device, record.failed) for record in p.records} == {("sim", x.device.index, False)}
    assert "no kernel" in poisson.reason
    assert poisson.bytes == 2 * 64 * 4
    assert poisson.syncs == 1
    assert mm.bytes == 0
    assert mm.shapes == ((8, 8), (8, 8))
    assert mm.dtypes == ("float32", "float32")
    assert all(before <= record.start_ns and record.start_ns + record.host_ns <= after for record in p.records)
    assert all(record.host_ns > 0 for record in p.records)
    assert p.start_ns <= mm.start_ns < relu.start_ns < poisson.start_ns < p.end_ns
    assert "aten::poisson" in str(p)


def test_the_parts_of_a_host_fallback_add_up() -> None:
    x = torch.rand(1 << 20, device="fl")
    with torch_fl.profiler.profile() as p:
        for _ in range(20):
            x.exp_()  # still running when the host wants to read
        torch.poisson(x)
    record = p.records[-1]
    assert record.op == "aten::poisson"
    assert record.wait_ns > 0
    assert record.copy_in_ns > 0
    assert record.compute_ns > record.copy_in_ns  # random numbers are slow
    assert record.copy_out_ns > 0
    parts = record.wait_ns + record.copy_in_ns + record.compute_ns + record.copy_out_ns
    assert 0.5 * record.host_ns < parts <= record.host_ns
    assert record.copy_ns == record.copy_in_ns + record.copy_out_ns


def test_nothing_outside_the_block() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p:
        pass
    x.add(1)
    assert len(p.records) == 0
    assert p.groups() == []


def test_calls_that_raise_are_recorded() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p, torch_fl.config(fallback="deny"), pytest.raises(torch_fl.UnsupportedOpError):
        torch.poisson(x)
    assert [(record.name, record.failed) for record in p.records] == [("aten::poisson", True)]
    assert p.groups(())[0].failed == 1
    with contextlib.suppress(ZeroDivisionError), torch_fl.profiler.profile() as p:
        x.neg()
        raise ZeroDivisionError
    assert names(p) == ["aten::neg"]


def test_capacity() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile(capacity=3) as p:
        for _ in range(4):
            x.neg()
        x.exp()
    assert [record.op for record in p.records] == ["aten::neg", "aten::neg", "aten::exp"]
    assert p.dropped == 2
    assert "2 earlier calls dropped" in str(p.summary())
    for bad in (0, -1):
        with pytest.raises(ValueError, match="at least 1"), torch_fl.profiler.profile(capacity=bad):
            pass


def test_shapes_are_bounded() -> None:
    x = torch.ones(3000, device="fl")
    with torch_fl.profiler.profile(capacity=5000) as p:
        for size in range(1, 3000):
            x[:size].neg()
    shapes = [record.shapes for record in p.records]
    assert shapes[0] == ((1,),)
    assert shapes[-1] == ()
    assert p.records[-1].op == "aten::neg"
    assert ["adapters of later kinds are not kept" in note for note in p.notes] == [True]


def test_code_objects_are_bounded() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p:
        for number in range(17_000):
            exec(compile("x.neg()", f"made_{number}.py", "exec"), {"x": x})
    sites = [record.site for record in p.records]
    assert sites[0].startswith("made_0.py:1")
    assert sites[-1] == ""
    assert ["code objects" in note for note in p.notes] == [True]
    with torch_fl.profiler.profile() as p:
        x.neg()
    assert p.records[0].site
    assert p.notes == ()


def test_layers_are_named_by_text_and_made_of_modules() -> None:
    with (
        pytest.raises(TypeError, match=r"layer: expected a name, found None \(NoneType\)"),
        torch_fl.profiler.layer(cast(Any, None)),
    ):
        pass
    with (
        pytest.raises(TypeError, match=r"layers: expected a torch.nn.Module, found 'abc' \(str\)"),
        torch_fl.profiler.profile(layers=cast(Any, "abc")),
    ):
        pass
    with torch_fl.profiler.profile():  # nothing was left behind
        pass


@pytest.mark.parametrize("bad", [1.5, "x", None])
def test_capacity_is_a_number(bad: object) -> None:
    with (
        pytest.raises(TypeError, match=rf"capacity must be an int, found {bad!r} \({type(bad).__name__}\)"),
        torch_fl.profiler.profile(capacity=bad),  # type: ignore[arg-type]
    ):
        pass


def test_a_capacity_beyond_all_memory() -> None:
    with torch_fl.profiler.profile(capacity=2**70) as p:
        torch.ones(2, device="fl").neg()
    assert "aten::neg" in names(p)


def test_a_profile_can_be_kept_and_entered_again() -> None:
    x = torch.ones(2, device="fl")
    recording = torch_fl.profiler.profile()
    with recording as first:
        x.neg()
    with recording as second:
        x.exp()
    assert [names(first), names(second)] == [["aten::neg"], ["aten::exp"]]


def test_one_profile_at_a_time() -> None:
    with (
        torch_fl.profiler.profile() as p,
        pytest.raises(RuntimeError, match="recorded already"),
        torch_fl.profiler.profile(),
    ):
        pass
    with torch_fl.profiler.profile() as p:
        torch.ones(2, device="fl").neg()
    assert names(p).count("aten::neg") == 1


def test_calls_of_all_threads() -> None:
    x = torch.ones(2, device="fl")
    together = threading.Barrier(4)  # a thread that is over gives its number away

    def work() -> None:
        together.wait()
        for _ in range(50):
            x.neg()

    with torch_fl.profiler.profile() as p:
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(p.records) == 200
    assert len({record.thread for record in p.records}) == 4
    assert {record.site for record in p.records} == {f"{__file__}:{work.__code__.co_firstlineno + 3} {_in(work)}"}


def _in(function: object) -> str:
    name = "__qualname__" if sys.version_info >= (3, 11) else "__name__"
    return f"({getattr(function, name)})"


def test_profiles_come_and_go_while_threads_call() -> None:
    x = torch.ones(2, device="fl")
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            x.neg()

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            with torch_fl.profiler.profile(capacity=500) as p:
                x.exp()
            assert {record.op for record in p.records} <= {"aten::neg", "aten::exp"}
            assert "" not in {record.site for record in p.records}
    finally:
        over.set()
        for thread in threads:
            thread.join()


def test_inner_calls_are_their_parents_time() -> None:
    x = torch.randn(4, 6, device="fl")
    with torch_fl.profiler.profile() as p:
        torch.addbmm(torch.zeros(2, 2, device="fl"), torch.ones(3, 2, 4, device="fl"), torch.ones(3, 4, 2, device="fl"))
        x.neg()
    (outer,) = [record for record in p.records if record.op == "aten::addbmm"]
    inner = [record for record in p.records if record.parent == outer.id]
    assert outer.route == "composite"
    assert inner
    assert outer.self_host_ns == outer.host_ns - sum(record.host_ns for record in inner)
    assert p.records[-1].parent == 0
    assert p.summary().host_ns == sum(record.self_host_ns for record in p.records)


# ---- Where a call comes from


def test_the_line_is_the_innermost_outside_torch() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4)).to("fl")
    x = torch.ones(2, 4, device="fl")
    with torch_fl.profiler.profile() as p:
        model(x)
        there = line() - 1
        [x.neg() for _ in range(2)]
        x.neg(), x.exp()  # several of one line
    assert {record.site for record in p.records if record.op == "aten::addmm"} == {
        f"{__file__}:{there} {_in(test_the_line_is_the_innermost_outside_torch)}"
    }
    assert [group.calls for group in p.groups(("site",))].count(2) >= 1
    assert f":{there + 3} " in p.records[-1].site
    assert p.records[-1].site == p.records[-2].site


def test_no_lines_unless_wanted() -> None:
    with torch_fl.profiler.profile(sites=False) as p:
        torch.ones(2, device="fl").neg()
    assert {record.site for record in p.records} == {""}


def test_code_that_is_thrown_away_keeps_its_line() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p:
        for i in range(50):
            exec(compile("\n" * i + "x.neg()", f"made_{i}.py", "exec"), {"x": x})
    assert [record.site for record in p.records] == [f"made_{i}.py:{i + 1} (<module>)" for i in range(50)]


def test_odd_names_of_files(tmp_path: Path) -> None:
    x = torch.ones(2, device="fl")
    odd = 'a "quoted"\n\udcff\\ é.py'
    with torch_fl.profiler.profile() as p:
        exec(compile("x.neg()", odd, "exec"), {"x": x})
    assert p.records[0].site == 'a "quoted"\n\\udcff\\ é.py:1 (<module>)'
    p.export_json_lines(tmp_path / "p.jsonl")
    p.export_chrome_trace(tmp_path / "p.json")
    assert json.loads((tmp_path / "p.jsonl").read_text().splitlines()[1])["site"] == p.records[0].site
    assert json.loads((tmp_path / "p.json").read_text())["traceEvents"][0]["args"]["site"] == p.records[0].site


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


def test_layers_forward_and_backward() -> None:
    model = torch.nn.Sequential(Block(), Block()).to("fl")
    x = torch.ones(2, 4, device="fl")
    with torch_fl.profiler.profile(layers=model) as p:
        model(x).sum().backward()
    forward = [(record.op, record.layer) for record in p.records if not record.backward]
    assert ("aten::addmm", "0.first") in forward
    assert ("aten::relu", "0") in forward
    assert ("aten::addmm", "1.second") in forward
    backward = {(record.op, record.layer) for record in p.records if record.backward}
    assert {("aten::mm", f"{i}.{name}") for i in range(2) for name in ("first", "second")} <= backward
    assert ("aten::threshold_backward", "1") in backward
    sites = {record.site for record in p.records if record.op in ("aten::mm", "aten::threshold_backward")}
    assert {site.rpartition(":")[0] for site in sites} == {__file__}
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks
    groups = {(group.layer, group.backward): group for group in p.groups(("layer", "backward"))}
    assert groups["1.second", False].calls >= 1
    assert groups["1.second", True].calls >= 2


def test_a_layer_that_raises_is_over() -> None:
    class Raises(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    model = torch.nn.Sequential(Raises())
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile(layers=model) as p:
        with pytest.raises(ZeroDivisionError):
            model(x)
        x.neg()
        with torch_fl.profiler.layer("mine"):
            x.exp()
    assert [(record.op, record.layer) for record in p.records] == [("aten::neg", ""), ("aten::exp", "mine")]


# ---- Copies


def test_copies_are_calls_of_their_own() -> None:
    host = torch.ones(64)
    with torch_fl.profiler.profile() as p:
        x = host.to("fl")
        x.cpu()
        x.clone()
        x[0].item()
        torch.zeros(16, device="fl")
    copies = [(record.op, record.reason, record.bytes) for record in p.records if record.route == "copy"]
    assert copies == [
        ("aten::_copy_from", "host to device", 256),
        ("aten::_copy_from", "device to host", 256),
        ("aten::_copy_from", "within the device", 256),
        ("aten::_local_scalar_dense", "device to host", 4),
        ("aten::zero_", "fill", 64),
    ]
    assert [record.syncs for record in p.records if record.reason == "device to host"] == [1, 1]
    assert p.summary().off_chip_calls == 0


# ---- Sums


def test_groups_are_the_sums_of_the_records() -> None:
    x = torch.ones(4, 4, device="fl")
    with torch_fl.profiler.profile() as p:
        for size in (2, 4):
            for _ in range(3):
                (x[:size] @ x).relu()
        torch.poisson(x)
    for by in (("op",), ("op", "shapes"), ("route", "reason"), ("site",), GROUP_FIELDS):
        groups = p.groups(by)
        for name in ("bytes", "syncs", "host_ns", "self_host_ns", "conversions"):
            assert sum(getattr(group, name) for group in groups) == sum(getattr(record, name) for record in p.records)
        for group in groups:
            alike = [r for r in p.records if all(getattr(r, name) == getattr(group, name) for name in by)]
            assert group.calls == len(alike)
            assert group.host_ns == sum(record.host_ns for record in alike)
    assert {group.name: group.calls for group in p.key_averages()} == {
        "aten::mm": 6,
        "aten::relu": 6,
        "aten::poisson": 1,
    }
    assert len(p.key_averages(group_by_input_shape=True)) == 5
    assert p.groups("op")[0].overload is None
    assert json.loads(json.dumps(p.groups(("op", "device")).as_dicts()))[0]["device"] == 0


def test_tables() -> None:
    x = torch.ones(4, 4, device="fl")
    with torch_fl.profiler.profile() as p:
        (x @ x).relu()
        x.relu()
    averages = p.key_averages()
    table = averages.table(sort_by="calls").splitlines()
    assert table[0].split()[:3] == ["operator", "route", "calls"]
    assert table[1].split()[:3] == ["aten::relu", "kernel", "2"]
    assert averages.table(sort_by="count", row_limit=1).splitlines()[-1] == "(1 more)"
    with pytest.raises(ValueError, match=r"'self_host_tine_total' is not one of .*did you mean 'self_host_time_total'"):
        averages.table(sort_by="self_host_tine_total")
    with pytest.raises(ValueError, match=r"by: 'layers' is not one of .*did you mean 'layer'"):
        p.groups(("layers",))


def test_adapters_are_named_and_counted() -> None:
    x = torch.randn(6, 4, device="fl")
    with torch_fl.profiler.profile() as p:
        x + torch.ones(6, 4, device="fl", dtype=torch.int32)
        for _ in range(3):
            x.t().softmax(0)
        torch.add(x, x, out=torch.zeros(6, 4, device="fl", dtype=torch.float64))
        x.neg()
    found = {record.name: record for record in p.records}
    assert found["aten::add.Tensor"].adapters == ("other: int32 to float32",)
    assert found["aten::add.Tensor"].conversions == 1
    assert found["aten::add.out"].adapters == ("result: computed as float32 and copied",)
    assert found["aten::neg"].adapters == ()
    softmax = [record for record in p.records if record.op == "aten::_softmax"]
    assert {record.adapters for record in softmax} == {("self: float32 as contiguous",)}
    assert [record.conversions for record in softmax] == [1, 1, 0]  # kept when the same conversion comes again


def test_records_are_a_sequence() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p:
        for _ in range(3000):
            x.neg()
    records = p.records
    assert len(records) == 3000
    assert records[-1] == records[2999]
    assert isinstance(records[5], Record)
    assert [r.id for r in records[10:20]] == [records[i].id for i in range(10, 20)]
    assert [r.id for r in records[10:20:3]] == [records[i].id for i in (10, 13, 16, 19)]
    assert next(iter(records[::-1])) == records[-1]
    assert len(records[2990:5000]) == 10
    assert [r.id for r in records] == sorted(r.id for r in records)
    with pytest.raises(IndexError, match="row 3000 of 3000"):
        records[3000]


def test_memory_over_time() -> None:
    with torch_fl.profiler.profile() as p:
        x = torch.ones(1 << 20, device="fl")
        y = x + x
        del x, y
        torch.ones(2, device="fl").neg()
    samples = p.memory()
    assert [sample.time_ns for sample in samples] == sorted(sample.time_ns for sample in samples)
    assert max(sample.allocated_bytes for sample in samples) - samples[-1].allocated_bytes > 7 << 20
    assert len(p.memory(points=1)) == 1
    assert p.memory(points=1)[0].allocated_bytes == max(sample.allocated_bytes for sample in samples)


# ---- Device events


def test_device_times_belong_to_the_calls() -> None:
    x = torch.ones(256, 256, device="fl")
    with torch_fl.profiler.profile() as p:
        for _ in range(5):
            x @ x
        x.cpu()
    assert p.notes == ()
    products = [record for record in p.records if record.op == "aten::mm"]
    for record in products:
        kernels = [e for e in p.events if e.correlation == record.id and e.kind == "kernel"]
        assert len(kernels) == 1
        taken = kernels[0].end_ns - kernels[0].start_ns
        assert abs(record.device_ns - taken) <= 1 + taken / 2**23  # a record keeps it in float32
        assert record.start_ns <= kernels[0].start_ns <= kernels[0].end_ns <= p.end_ns
    (copied,) = [record for record in p.records if record.route == "copy"]
    assert [(e.kind, e.bytes) for e in p.events if e.correlation == copied.id and e.kind == "copy"] == [
        ("copy", 1 << 18)
    ]
    group = next(group for group in p.key_averages() if group.op == "aten::mm")
    total = sum(record.device_ns for record in products)
    assert abs(group.device_ns - total) <= len(products) + total / 2**23
    with torch_fl.profiler.profile(device_events=False) as p:
        x @ x
    assert len(p.events) == 0
    assert p.records[0].device_ns == 0


# ---- Files


def test_json_lines_are_the_records(tmp_path: Path) -> None:
    x = torch.ones(8, 8, device="fl")
    with torch_fl.profiler.profile() as p:
        torch.poisson(x @ x)
    p.export_json_lines(tmp_path / "p.jsonl")
    header, *rows = [json.loads(text) for text in (tmp_path / "p.jsonl").read_text().splitlines()]
    assert header["type"] == "header"
    assert header["records"] == len(p.records)
    assert header["events"] == len(p.events) == len(rows) - len(p.records)
    for kind, objects, lines in (("record", p.records, rows), ("event", p.events, rows[len(p.records) :])):
        for item, row in zip(objects, lines, strict=False):
            assert row.pop("type") == kind
            fields = json.loads(json.dumps(dataclasses.asdict(item)))  # type: ignore[call-overload]
            assert row == {key: value for key, value in fields.items() if value or key == "sequence"}


def test_a_chrome_trace_has_calls_events_and_arrows(tmp_path: Path) -> None:
    x = torch.ones(8, 8, device="fl")
    with torch_fl.profiler.profile() as p:
        torch.poisson(x @ x)
    p.export_chrome_trace(tmp_path / "p.json")
    events = json.loads((tmp_path / "p.json").read_text())["traceEvents"]
    for event in events:
        assert {"ph", "pid", "tid", "ts", "name"} <= event.keys()
        assert event["ph"] in "XCMsf"
        assert event["ph"] != "X" or event["dur"] >= 0
    calls = {
        event["args"]["id"]: event
        for event in events
        if event.get("cat") in ("kernel", "host") and "id" in event["args"]
    }
    for record in p.records:
        call = calls[record.id]
        assert call["name"] == record.name
        assert call["ts"] == pytest.approx(record.start_ns / 1e3)
        assert call["dur"] == pytest.approx(record.host_ns / 1e3)
        assert call["tid"] == record.thread
    kernels = [event for event in events if event.get("cat") == "kernel" and "correlation" in event["args"]]
    assert len(kernels) == sum(event.kind == "kernel" for event in p.events)
    starts, ends = ({e["id"] for e in events if e["ph"] == phase} for phase in "sf")
    assert {kernel["args"]["correlation"] for kernel in kernels} <= starts
    assert ends <= starts
    devices = {event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert devices == {"host", "fl:0"}


def test_a_file_that_cannot_be_written() -> None:
    with torch_fl.profiler.profile() as p:
        pass
    for write in (p.export_json_lines, p.export_chrome_trace):
        with pytest.raises(RuntimeError, match=r"cannot write /nowhere/p.json: No such file"):
            write("/nowhere/p.json")


def test_a_full_disk_is_an_error_not_the_end() -> None:
    x = torch.ones(2, device="fl")
    with torch_fl.profiler.profile() as p:
        for _ in range(8000):  # more than is written at once
            x.neg()
    for write in (p.export_json_lines, p.export_chrome_trace):
        with pytest.raises(RuntimeError, match="cannot write /dev/full: No space left"):
            write("/dev/full")


def test_file_names_are_what_the_system_takes(tmp_path: Path) -> None:
    with torch_fl.profiler.profile() as p:
        torch.ones(2, device="fl").neg()
    odd = tmp_path / os.fsdecode(b"x\xff.json")
    for write in (p.export_json_lines, p.export_chrome_trace):
        write(odd)
        assert odd.stat().st_size > 0
        with pytest.raises(ValueError, match="null character"):
            write(f"{tmp_path}/a\0b")
    assert not (tmp_path / "a").exists()


# ---- Threads, layers and the backward pass


def test_many_threads_of_few_calls_are_all_kept() -> None:
    x = torch.ones(2, device="fl")

    def few() -> None:
        for _ in range(10):
            x.neg()

    with torch_fl.profiler.profile(capacity=2000) as p:
        for _ in range(100):
            thread = threading.Thread(target=few)
            thread.start()
            thread.join()
    assert (len(p.records), p.dropped) == (1000, 0)


def test_a_backward_pass_whose_forward_was_not_recorded_has_no_layer() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).to("fl")
    x = torch.ones(3, 4, device="fl")
    loss = model(x).sum()
    with torch_fl.profiler.profile(layers=model) as p, torch_fl.profiler.layer("metrics"):
        with torch.no_grad():
            _ = x + x
        loss.backward()
    backward = [record for record in p.records if record.backward]
    assert backward
    assert {record.layer for record in backward} == {""}
    with torch_fl.profiler.profile(layers=model) as p:
        model(x).sum().backward()
    assert {"0", "1", "2"} <= {record.layer for record in p.records if record.backward}


def test_a_model_is_as_ever_while_its_layers_are_recorded() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to("fl")
    x = torch.ones(3, 4, device="fl")
    with torch_fl.profiler.profile(layers=model) as p:
        torch.save(model, io.BytesIO())
        twin = copy.deepcopy(model)
        torch.compile(model, backend="eager", fullgraph=True)(x)
        model(x)
    assert not twin[0]._forward_hooks
    assert not twin[0]._forward_pre_hooks
    assert {"0", "1"} <= {record.layer for record in p.records}


def test_layers_of_generators_end_in_any_order() -> None:
    x = torch.ones(2, device="fl")

    def inside(name: str) -> Iterator[None]:
        with torch_fl.profiler.layer(name):
            while True:
                yield

    a, b = inside("a"), inside("b")
    with torch_fl.profiler.profile() as p:
        next(a), next(b)
        x.neg()
        a.close()
        x.neg()
        b.close()
        x.neg()
    assert [record.layer for record in p.records] == ["b", "b", ""]


# ---- The light form


def test_recording_stops_wherever_ctrl_c_comes() -> None:
    """The interpreter looks for it where a function of Python's starts, and where one of C's has returned."""
    for moment in itertools.count():
        error, inside = _interrupted(moment)
        if error is None:
            break
        if inside:  # the recording may end with the traceback
            del error
        with torch_fl.profiler.profile():  # which refuses while another recording goes on
            pass
    assert moment > 10


def _interrupted(moment: int) -> tuple[KeyboardInterrupt | None, bool]:
    """Record a block into which Ctrl-C comes at a moment; return it (None: the block was over), and whether inside."""
    left, inside = moment, False

    def interrupt(_: object, event: str, __: object) -> None:
        nonlocal left
        left -= event in ("call", "c_return")
        if left < 0:
            raise KeyboardInterrupt

    try:
        sys.setprofile(interrupt)
        with torch_fl.profiler.profile():
            inside = True
    except KeyboardInterrupt as error:
        return error, inside
    finally:
        sys.setprofile(None)
    return None, inside


def test_profile_dispatch_counts_one_block() -> None:
    x = torch.ones(2, device="fl")
    x.neg()
    with torch_fl.profile_dispatch() as d:
        x.neg().neg()
        torch.poisson(x)
    assert {(row.name, row.route): row.calls for row in d} == {("aten::neg", "kernel"): 2, ("aten::poisson", "host"): 1}
    assert d.where(route="host").total().bytes == 16
    assert d.wall_ns >= d.total().ns > 0
    assert "aten::poisson" in str(d)
    assert json.loads(json.dumps(d.as_dicts()))[0]["op"].startswith("aten::")
    x.exp()
    with torch_fl.profile_dispatch() as d:
        x.neg()
        torch_fl.reset_counters()
        x.exp().exp()
    assert {row.op: row.calls for row in d} == {"aten::exp": 2}
