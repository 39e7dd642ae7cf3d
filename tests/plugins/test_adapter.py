# SPDX-License-Identifier: Apache-2.0
"""Converted arguments that are kept: weights of a chip whose convolutions take channels-last tensors only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.plugins.described import FEW, run_described

OPS = (*FEW, "aten::convolution", "aten::convolution_backward", "aten::uniform_", "aten::mm")
SPEC = 'spec = {"rules": [("aten::convolution", {"flags": FLAGS["channels_last_only"]})]}'
START = """
torch.manual_seed(1)
layer = torch.nn.Conv2d(8, 8, 3)
there = torch.nn.Conv2d(8, 8, 3).to("fl")
there.load_state_dict(layer.state_dict())
x = torch.randn(2, 8, 6, 6).contiguous(memory_format=torch.channels_last)  # the weight alone is converted
y = x.to("fl")

def call(n=1):
    "How many conversions the calls take. The result is compared with the CPU's."
    before = torch_fl.adapter_stats().conversions
    with torch.no_grad():
        for _ in range(n):
            torch.testing.assert_close(there(y).cpu(), layer(x), rtol=1e-4, atol=1e-4)
    return torch_fl.adapter_stats().conversions - before
"""


def _run(folder: Path, code: str, **environment: str) -> Any:
    return run_described(folder, START + code, SPEC, OPS, **environment)


def test_a_weight_is_converted_once(tmp_path: Path) -> None:
    """Twice, in truth: it is kept when the same conversion comes again."""
    first, rest, stats, row = _run(
        tmp_path,
        """
first, rest = call(2), call(20)
stats = torch_fl.adapter_stats()
(row,) = [row for row in torch_fl.counters() if row.op.startswith("aten::convolution")]
print(json.dumps([first, rest, [stats.reuses, stats.kept, str(stats)], [row.route, row.calls, row.conversions]]))
""",
    )
    assert first == 2
    assert rest == 0
    assert stats[:2] == [20, 1]
    assert stats[2].startswith("2 conversions, 20 reused instead, 1 kept (")
    assert row == ["kernel", 22, 2]


WRITES = {
    "add_": "m.weight.add_(1)",
    "data.copy_": "m.weight.data.copy_(torch.ones(8, 8, 3, 3))",
    "optimizer": "m.weight.grad = torch.ones_like(m.weight); torch.optim.SGD([m.weight], 0.1).step()",
    "foreach": "torch._foreach_mul_([m.weight], 2)",
    "view": "m.weight[0].mul_(3)",
    "other view": "m.weight.view(-1)[5:9] = 7",
    "data's view": "m.weight.data.view(-1)[:4].fill_(2)",
    "zero_": "m.weight.zero_()",
    "out=": "torch.mul(m.weight, 2, out=m.weight.data)",
    "host route": "m.weight.data.erfinv_()",
    "load_state_dict": "m.load_state_dict({k: v * 2 for k, v in m.state_dict().items()})",
    "new data": "m.weight.data = m.weight.data * 2",
    "random": "m.weight.data.uniform_(1, 1)",
    "init": "torch.nn.init.constant_(m.weight, 0.5)",
    "swap": "m.weight = torch.nn.Parameter(m.weight * 2)",
    "storage": "m.weight.untyped_storage().copy_((m.weight * 2).detach().untyped_storage())",
    "index_put_": "m.weight.data[torch.tensor([1])] = 3.0",
}


def test_a_write_ends_it(tmp_path: Path) -> None:
    counts = _run(
        tmp_path,
        f"""
counts = {{}}
for kind, write in {WRITES!r}.items():
    layer = torch.nn.Conv2d(8, 8, 3)
    there = torch.nn.Conv2d(8, 8, 3).to("fl")
    there.load_state_dict(layer.state_dict())
    before = call(3)
    with torch.no_grad():
        for m in (layer, there):
            exec(write, {{"m": m, "torch": torch}})
    counts[kind] = before, call(1), call(3)
print(json.dumps(counts))
""",
    )
    for kind, (before, after, later) in counts.items():
        assert before == 2, kind
        assert after == 1, f"{kind}: the kept weight outlived the write"
        assert later <= 1, f"{kind}: the new one is not kept"


def test_it_is_dropped_with_the_storage_and_over_the_limit(tmp_path: Path) -> None:
    kept, gone, small, emptied = _run(
        tmp_path,
        """
call(3)
kept = torch_fl.adapter_stats().kept
del there.weight
gone = torch_fl.adapter_stats().kept
there.weight = torch.nn.Parameter(layer.weight.detach().to("fl"))
core.set_adapter_cache_mb(0)
call(3)
small = torch_fl.adapter_stats().kept
core.set_adapter_cache_mb(256)
call(3)
assert torch_fl.adapter_stats().kept == 1
torch.fl.empty_cache()
print(json.dumps([kept, gone, small, torch_fl.adapter_stats().kept]))
""",
    )
    assert [kept, gone, small, emptied] == [1, 0, 0, 0]


def test_the_least_recently_used_goes_first(tmp_path: Path) -> None:
    code = """
core.set_adapter_cache_mb(1)
side = 300  # 300 * 300 * 4 bytes: two of them fit
layers = [torch.nn.Conv2d(300, 300, (1, 2), bias=False, device="fl") for _ in range(3)]
y = torch.randn(1, 300, 2, 2, device="fl").contiguous(memory_format=torch.channels_last)
core.set_adapter_cache_mb(2)  # of 703 KiB each
def conversions(index):
    before = torch_fl.adapter_stats().conversions
    with torch.no_grad():
        layers[index](y)
    return torch_fl.adapter_stats().conversions - before
for index in (0, 0, 1, 1):
    conversions(index)
assert conversions(0) == 0 and conversions(1) == 0 and conversions(0) == 0
conversions(2), conversions(2)  # 1 gives way
print(json.dumps([conversions(0), conversions(2), conversions(1), torch_fl.adapter_stats().kept_bytes <= 2 << 20]))
"""
    assert _run(tmp_path, code) == [0, 0, 1, True]


def test_streams_and_threads(tmp_path: Path) -> None:
    code = """
import threading
call(2)
streams = [torch.fl.Stream() for _ in range(3)]
failures = []
def work(stream):
    with torch.fl.stream(stream), torch.no_grad():
        for _ in range(20):
            got = there(y).cpu()
            if not torch.allclose(got, want, rtol=1e-4, atol=1e-4):
                failures.append(1)
with torch.no_grad():
    want = layer(x)
torch.fl.synchronize()
threads = [threading.Thread(target=work, args=(stream,)) for stream in streams]
for thread in threads: thread.start()
for thread in threads: thread.join()
del there
torch.fl.synchronize()
print(json.dumps([len(failures), torch_fl.adapter_stats().kept]))
"""
    assert _run(tmp_path, code) == [0, 0]


def test_memory_runs_out(tmp_path: Path) -> None:
    """What is kept gives way before an allocation fails."""
    code = """
call(3)
big = 60 << 20
blocks = []
try:
    while True:
        blocks.append(torch.empty(1 << 20, dtype=torch.uint8, device="fl"))
except torch.OutOfMemoryError:
    pass
print(json.dumps(torch_fl.adapter_stats().kept))
"""
    assert _run(tmp_path, code, SIMCHIP_MEMORY_MB="64") == 0


def test_training_takes_no_harm(tmp_path: Path) -> None:
    code = """
here = torch.optim.SGD(layer.parameters(), 0.1, momentum=0.9)
far = torch.optim.SGD(there.parameters(), 0.1, momentum=0.9)
for _ in range(5):
    for m, o, t in ((layer, here, x), (there, far, y)):
        o.zero_grad()
        m(t).square().mean().backward()
        m(t)
        o.step()
torch.testing.assert_close(there.weight.cpu(), layer.weight, rtol=1e-4, atol=1e-4)
print(json.dumps(True))
"""
    assert _run(tmp_path, code)
