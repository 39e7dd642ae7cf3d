# SPDX-License-Identifier: Apache-2.0
"""What a descriptor says of kernels: calls that break a rule never reach the chip; what the host can mend, it mends."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.described import FEW, run_described


def test_a_call_that_breaks_a_rule_never_reaches_the_chip(tmp_path: Path) -> None:
    spec = """
even = check("aten::exp", "self.size(0) must be even", "self.size(0) % 2 == 0", "self.size(0)")
spec = {"rules": [("aten::exp", {"checks": [even]})]}
"""
    code = """
answers = []
for form in (torch.exp, lambda t: t.clone().exp_(), lambda t: torch.exp(t, out=torch.empty(0, device=t.device))):
    for n in (4, 5):
        torch_fl.reset_counters()
        x = torch.randn(n, 2)
        torch.testing.assert_close(form(x.to("fl")).cpu(), form(x))
        answers += [[found.route, found.reason] for found in torch_fl.counters() if "exp" in found.op and found.calls]
print(json.dumps([answers, str(torch_fl.query_op("aten::exp").rows[0])]))
"""
    answers, text = run_described(tmp_path, code, spec)
    assert [route for route, _ in answers] == ["kernel", "host"] * 3
    assert all(reason == "self.size(0) must be even, found 5" for route, reason in answers if route == "host")
    assert "kernel aten::exp (" in text
    assert "only when self.size(0) must be even" in text


def test_a_rule_on_values_is_asked_on_every_call(tmp_path: Path) -> None:
    spec = """
one = check("aten::add.Tensor", "alpha must be 1", "alpha == 1", "alpha")
assert one["reads_values"]
spec = {"rules": [("aten::add.Tensor", {"checks": [one]})]}
"""
    code = """
x = torch.ones(3, device="fl")
assert [torch.add(x, x, alpha=a).tolist()[0] for a in (2, 1, 3, 1)] == [3, 2, 4, 2]
print(json.dumps([[row.route, row.calls, row.reason] for row in torch_fl.counters() if row.op == "aten::add"]))
"""
    rows = sorted(run_described(tmp_path, code, spec))
    assert [(route, calls) for route, calls, _ in rows] == [("host", 1), ("host", 1), ("kernel", 2)]
    assert sorted(reason for route, _, reason in rows if route == "host") == [
        "alpha must be 1, found 2",
        "alpha must be 1, found 3",
    ]


def test_casts(tmp_path: Path) -> None:
    spec = """
spec = {"rules": [(op, {"casts": [(BFLOAT16, FLOAT32), (FLOAT16, FLOAT32)]})
                  for op in ("aten::exp", "aten::add.Tensor", "aten::_softmax")]}
"""
    code = """
x = torch.randn(4, 6)
with torch_fl.config(fallback="deny"):
    for dtype in (torch.bfloat16, torch.float16):
        h = x.to(dtype)
        y = h.to("fl")
        z = y.clone()
        z.exp_()
        strided = torch.exp(y.t())
        for got, want in ((torch.exp(y), h.exp()), (z, h.exp()), (strided, h.t().exp()), (y + y, h + h),
                          (torch.softmax(y, 1), torch.softmax(h, 1)), (y + 1.5, h + 1.5)):
            assert got.dtype == dtype and got.stride() == want.stride()
            torch.testing.assert_close(got.cpu(), want)
rows = [row for row in torch_fl.counters() if row.op in ("aten::exp", "aten::exp_") and row.calls]
print(json.dumps([sum(row.conversions for row in rows), sum(row.calls for row in rows),
                  str(torch_fl.query_op("aten::exp").rows[0])]))
"""
    conversions, calls, text = run_described(tmp_path, code, spec, (*FEW, "aten::_softmax"))
    assert conversions >= calls - 2  # the same one, converted before, is kept
    assert "bfloat16 computed in float32" in text


def test_alignment(tmp_path: Path) -> None:
    """Inputs at any address, strided and broadcast; outputs of every kind; and the kernel sees aligned ones only."""
    spec = 'spec = {"rules": [("aten::add.Tensor", {"alignment": 4096})]}'
    code = """
base = torch.randn(5000)
there = base.to("fl")
windows = [lambda t: t[1:101], lambda t: t[3:1003:7], lambda t: t[5:105].view(10, 10).t(), lambda t: t[7].expand(9, 9)]
for window in windows:
    a, b = window(base), window(there)
    torch.testing.assert_close((b + b).cpu(), a + a)
    torch.testing.assert_close((b + there[11:12]).cpu(), a + base[11:12])
    if a.numel() == 81:
        continue
    out_here, out_there = torch.zeros(5000), torch.zeros(5000, device="fl")
    torch.add(a, a, out=window(out_here)), torch.add(b, b, out=window(out_there))
    assert torch.equal(out_there.cpu(), out_here)
    window(out_here).add_(1), window(out_there).add_(1)
    assert torch.equal(out_there.cpu(), out_here)
rows = [row for row in torch_fl.counters() if row.op.startswith("aten::add")]
assert {row.route for row in rows} == {"kernel"}, rows
print(json.dumps([sum(row.conversions for row in rows) > 0, str(torch_fl.query_op("aten::add.Tensor").rows[0])]))
"""
    converted, text = run_described(tmp_path, code, spec, FL_SUBSET_ALIGNED="1")
    assert converted
    assert "aligned to 4096 bytes: the host copies" in text


def test_what_is_not_to_be_done_in_place(tmp_path: Path) -> None:
    spec = 'spec = {"rules": [("aten::exp", {"cleared": FLAGS["in_place_safe"]})]}'
    code = """
x = torch.randn(6)
y = x.to("fl")
y.exp_()
torch.testing.assert_close(y.cpu(), x.exp())
before = torch_fl.query_op("aten::exp").rows[0].kernel.flags
print(json.dumps([routes("exp_"), list(before)]))
"""
    found, flags = run_described(tmp_path, code, spec)
    assert list(found) == ["kernel"]
    assert "in_place_safe" not in flags
