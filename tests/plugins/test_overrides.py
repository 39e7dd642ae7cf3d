# SPDX-License-Identifier: Apache-2.0
"""Route ``override``: Python functions and expressions in the place of operators; and policies of descriptors."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.described import run_described

EXPRESSION = """spec = {"fallbacks": [("aten::gelu", {"expression": "self * aten::sigmoid(1.702 * self)"})]}"""
FUNCTION = """
spec = {"fallbacks": [("aten::gelu", {"python": "my_gelu"})]}
"""


def test_an_expression_in_every_form(tmp_path: Path) -> None:
    code = """
x = torch.randn(4, 6)
y = x.to("fl")
want = x * torch.sigmoid(1.702 * x)
out = torch.empty(0, device="fl")
torch._C._nn.gelu(y, out=out)
z = y.clone()
torch._C._nn.gelu_(z)
wide = torch.empty(4, 6, device="fl", dtype=torch.float64)
torch._C._nn.gelu(y, out=wide)
for got in (F.gelu(y), out, z, wide.float()):
    torch.testing.assert_close(got.cpu(), want)
torch.testing.assert_close(F.gelu(y.t()).cpu(), want.t())
grad = y.clone().requires_grad_()
F.gelu(grad).sum().backward()  # the derivative stays that of the operator
try:
    torch._C._nn.gelu(y, out=torch.empty(4, 6, device="fl", dtype=torch.int32))
except RuntimeError as error:
    refused = str(error)
print(json.dumps([list(routes("gelu")), str(torch_fl.query_op("aten::gelu").rows[0]), refused]))
"""
    found, text, refused = run_described(tmp_path, code, EXPRESSION)
    assert found == ["override"]
    assert "override self * aten::sigmoid(1.702 * self)" in text
    assert "can't be cast" in refused


def test_a_function_takes_the_operators_arguments(tmp_path: Path) -> None:
    code = """
seen = []
x = torch.randn(3, device="fl")
F.gelu(x)
before = routes("gelu")
@torch_fl.override_function("my_gelu")
def my_gelu(self, *, approximate="none"):
    seen.append((str(self.device), approximate))
    return self + 1
torch_fl.reset_counters()
assert torch.equal(F.gelu(x), x + 1) and torch.equal(F.gelu(x, approximate="tanh"), x + 1)
print(json.dumps([before, list(routes("gelu")), seen]))
"""
    before, found, seen = run_described(tmp_path, code, FUNCTION)
    assert list(before) == ["host"]
    assert "the override 'my_gelu' is registered nowhere: use @torch_fl.override_function('my_gelu')" in before["host"]
    assert found == ["override"]
    assert seen == [["fl:0", "none"], ["fl:0", "tanh"]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return self.cpu()", "must give a strided tensor on fl:0, found one on cpu"),
        ("return self.half()", "gave float16[3], expected float32[3]"),
        ("return self[:2]", "gave float32[2], expected float32[3]"),
        ("return self, self", "gave 2 tensors, expected 1"),
        ("return 3", "must give tensors, found int"),
        ("raise KeyError('mine')", "'mine'"),
    ],
)
def test_a_function_that_gives_something_else(body: str, message: str, tmp_path: Path) -> None:
    code = f"""
@torch_fl.override_function("my_gelu")
def my_gelu(self, *, approximate="none"):
    {body}
try:
    F.gelu(torch.randn(3, device="fl"))
except Exception as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    kind, text = run_described(tmp_path, code, FUNCTION)
    assert message in text
    assert kind == ("KeyError" if "mine" in body else "TypeError" if body == "return 3" else "RuntimeError")


def test_an_override_never_leads_back_to_itself(tmp_path: Path) -> None:
    code = """
@torch_fl.override_function("my_gelu")
def my_gelu(self, *, approximate="none"):
    return F.gelu(self) * 1
x = torch.randn(3)
torch.testing.assert_close(F.gelu(x.to("fl")).cpu(), F.gelu(x))
print(json.dumps(routes("gelu")))
"""
    found = run_described(tmp_path, code, FUNCTION)
    assert sorted(found) == ["host", "override"]
    assert "called by its own override" in found["host"]


def test_what_a_function_returns_is_new_memory(tmp_path: Path) -> None:
    code = """
@torch_fl.override_function("my_gelu")
def my_gelu(self, *, approximate="none"):
    return self
x = torch.ones(3, device="fl")
y = F.gelu(x)
y.add_(1)
print(json.dumps([x.tolist(), y.tolist()]))
"""
    assert run_described(tmp_path, code, FUNCTION) == [[1, 1, 1], [2, 2, 2]]


def test_a_wrong_expression_is_located(tmp_path: Path) -> None:
    spec = EXPRESSION.replace("sigmoid", "sigmoit")
    code = """
try:
    F.gelu(torch.ones(3, device="fl"))
except torch_fl.ConfigError as error:
    print(json.dumps(str(error)))
"""
    text = run_described(tmp_path, code, spec)
    assert text.splitlines() == [
        "no operator 'aten::sigmoit', in an override's expression:",
        "  self * aten::sigmoit(1.702 * self)",
        "         ^",
    ]


POLICIES = 'spec = {"policy": "deny", "fallbacks": [("aten::poisson", {"policy": "allow"})]}'


def test_policies_of_the_process_come_before_those_of_a_descriptor(tmp_path: Path) -> None:
    code = """
x = torch.ones(3, device="fl")
def outcome(function):
    try:
        function(x)
    except torch_fl.UnsupportedOpError as error:
        return str(error)
    return "ran"
answers = [outcome(torch.poisson), outcome(torch.erfinv), str(torch_fl.query_op("aten::erfinv").rows[0])]
with torch_fl.config(fallback="allow"):
    answers.append(outcome(torch.erfinv))
answers.append(outcome(torch.erfinv))
with torch_fl.config(fallback={"aten::poisson": "deny"}):
    answers.append(outcome(torch.poisson))
torch_fl.set_config("fallback.aten::erfinv", "allow")
answers.append(outcome(torch.erfinv))
print(json.dumps(answers))
"""
    poisson, erfinv, query, allowed, again, denied, remedied = run_described(tmp_path, code, POLICIES)
    assert poisson == "ran"
    assert "The fallback policy is 'deny', as the chip's descriptor says." in erfinv
    assert 'torch_fl.set_config("fallback.aten::erfinv", "allow")' in erfinv
    assert "fallback=deny, by the chip's descriptor" in query
    assert allowed == "ran"
    assert again == erfinv
    assert "The fallback policy is 'deny'. To let" in denied
    assert remedied == "ran"


def test_the_environment_comes_before_a_descriptor(tmp_path: Path) -> None:
    code = 'torch.erfinv(torch.ones(3, device="fl")); print(json.dumps("ran"))'
    assert run_described(tmp_path, code, POLICIES, TORCH_FL_FALLBACK="allow") == "ran"
