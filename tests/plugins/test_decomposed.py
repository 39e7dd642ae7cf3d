# SPDX-License-Identifier: Apache-2.0
"""Route ``decomposed``, on a chip with few kernels."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.described import FEW, run_described

CALLS = {
    "silu": "F.silu(x)",
    "_softmax": "torch.softmax(x, -1)",
    "_log_softmax": "torch.log_softmax(x, 0)",
    "addcmul": "torch.addcmul(x, x, x, value=2)",
    "softplus": "F.softplus(x)",
    "hardswish": "F.hardswish(x)",
    "leaky_relu": "F.leaky_relu(x, 0.1)",
    "elu": "F.elu(x)",
    "gelu": "F.gelu(x, approximate='tanh')",
}


def test_operators_are_made_of_those_that_the_chip_has(tmp_path: Path) -> None:
    code = f"""
torch.manual_seed(0)
here = torch.randn(6, 8)
answers = {{}}
for op, call in {CALLS!r}.items():
    torch_fl.reset_counters()
    with torch_fl.config(fallback="deny"):
        got = eval(call, {{"x": here.to("fl"), "F": F, "torch": torch}})
    expected = eval(call, {{"x": here, "F": F, "torch": torch}})
    torch.testing.assert_close(got.cpu(), expected)
    assert got.stride() == expected.stride(), op
    answers[op] = routes(op)
print(json.dumps(answers))
"""
    answers = run_described(tmp_path, code)
    assert {op: list(found) for op, found in answers.items()} == {op: ["decomposed"] for op in CALLS}
    assert "decomposed into aten::" in answers["silu"]["decomposed"]


def test_what_is_missing_is_named_and_the_host_computes(tmp_path: Path) -> None:
    code = """
x = torch.randn(5)
torch.testing.assert_close(F.gelu(x.to("fl")).cpu(), F.gelu(x))
print(json.dumps([routes("gelu"), str(torch_fl.query_op("aten::gelu").rows[0])]))
"""
    found, text = run_described(tmp_path, code)
    assert list(found) == ["host"]
    for said in (found["host"], text):
        assert "not decomposed: needs aten::erf, for which the chip has no kernel for aten::erf" in said


def test_the_rules_of_the_parts_count(tmp_path: Path) -> None:
    spec = """
even = check("aten::exp", "self.size(0) must be even", "self.size(0) % 2 == 0", "self.size(0)")
spec = {"rules": [("aten::exp", {"checks": [even]})]}
"""
    code = """
answers = []
for n in (4, 5):
    torch_fl.reset_counters()
    x = torch.randn(n, 3)
    torch.testing.assert_close(torch.softmax(x.to("fl"), 1).cpu(), torch.softmax(x, 1))
    answers.append(routes("_softmax"))
print(json.dumps(answers))
"""
    even, odd = run_described(tmp_path, code, spec)
    assert list(even) == ["decomposed"]
    assert list(odd) == ["host"]
    assert "aten::exp, for which self.size(0) must be even, found 5" in odd["host"]


def test_other_forms_and_other_types(tmp_path: Path) -> None:
    code = """
x = torch.randn(4, 6)
y = x.to("fl")
with torch_fl.config(fallback="deny"):
    out = torch.empty(0, device="fl")
    F.silu(y, inplace=False), torch.ops.aten.silu.out(y, out=out)
    z = y.clone()
    same = F.silu(z, inplace=True)
    strided = F.silu(y.t())
assert same is z and out.shape == (4, 6)
for got, want in ((out, F.silu(x)), (z, F.silu(x)), (strided, F.silu(x.t()))):
    torch.testing.assert_close(got.cpu(), want)
assert strided.stride() == F.silu(x.t()).stride()
halves = F.silu(y.half())
torch.testing.assert_close(halves.cpu(), F.silu(x.half()))
try:
    torch.ops.aten.silu.out(y, out=torch.empty(4, 6, device="fl", dtype=torch.int64))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
    assert "Found dtype Long but expected Float" in run_described(tmp_path, code)  # the CPU's own words


def test_gradients_and_random_numbers(tmp_path: Path) -> None:
    code = """
x = torch.randn(4, 6)
y = x.to("fl").requires_grad_()
F.silu(y).sum().backward()
x.requires_grad_()
F.silu(x).sum().backward()
torch.testing.assert_close(y.grad.cpu(), x.grad)
torch.fl.manual_seed(3)
F.dropout(y, 0.5)
random = routes("native_dropout"), routes("bernoulli_")
print(json.dumps(["decomposed" in found for found in random]))
"""
    assert run_described(tmp_path, code) == [False, False]


def test_a_descriptor_can_forbid_it(tmp_path: Path) -> None:
    spec = 'spec = {"fallbacks": [("aten::silu", {"decompose": False})]}'
    code = """
F.silu(torch.ones(3, device="fl"))
print(json.dumps([routes("silu"), str(torch_fl.query_op("aten::silu"))]))
"""
    found, text = run_described(tmp_path, code, spec)
    assert list(found) == ["host"]
    assert "not decomposed: the chip's descriptor forbids it" in found["host"]
    assert "not decomposed: the chip's descriptor forbids it" in text


def test_views_threads_and_repeats(tmp_path: Path) -> None:
    """Many threads decompose at once; no result shares memory with an argument."""
    code = """
import threading
x = torch.randn(8, 8)
want = F.silu(x)
failures = []
def work():
    y = x.to("fl")
    for _ in range(30):
        got = F.silu(y)
        if not torch.allclose(got.cpu(), want) or got.data_ptr() == y.data_ptr():
            failures.append(1)
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
rows = [row for row in torch_fl.counters() if row.op == "aten::silu"]
print(json.dumps([len(failures), [(row.route, row.calls) for row in rows], rows[0].ns > 0]))
"""
    assert run_described(tmp_path, code) == [0, [["decomposed", 120]], True]


@pytest.mark.parametrize("op", ["silu", "_softmax", "addcmul"])
def test_query_op_names_the_parts(op: str, tmp_path: Path) -> None:
    found = run_described(tmp_path, f'print(json.dumps(str(torch_fl.query_op("aten::{op}").rows[0])))')
    assert f"aten::{op} on few: decomposed into aten::" in found


def test_explain(tmp_path: Path) -> None:
    code = """
x = torch.ones(4, device="fl")
torch_fl.reset_counters()
named = torch_fl.explain("aten::gelu", x)
assert not [row for row in torch_fl.counters() if row.calls], "explaining an operator runs it"
print(json.dumps([str(named), str(torch_fl.explain(lambda t: F.silu(t) * 2, x))]))
"""
    named, function = run_described(tmp_path, code)
    assert named.startswith("aten::gelu on few (fl:0): host: ")
    assert "not decomposed: needs aten::erf" in named
    assert "aten::silu on few (fl:0): decomposed: " in function
    assert "aten::mul.Tensor on few (fl:0): kernel: the chip's kernel" in function


def test_without_kernels_there_is_nothing_to_decompose_into(tmp_path: Path) -> None:
    code = 'F.silu(torch.ones(3, device="fl")); print(json.dumps(list(routes("silu"))))'
    assert run_described(tmp_path, code, ops=("aten::nothing",)) == ["host"]
    assert FEW
