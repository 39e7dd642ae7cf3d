# SPDX-License-Identifier: Apache-2.0
"""The harness must notice a wrong device. Each test plants one fault on the "device" side of a CPU-CPU comparison."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.harness.compare import Mismatch, check_tree, exact_results
from tests.harness.trees import Mover
from tests.ops import catalogue, ties
from tests.ops.engine import Arguments, Options, PairCheck, check_errors
from tests.ops.exceptions import Exemption
from tests.ops.modules import check_module
from tests.ops.optimizers import check_optimizer
from tests.ops.outcome import Outcome
from tests.ops.pool import Pool, Results, Settings
from tests.ops.report import Report


def _op(name: str) -> Any:
    return next(op for op in catalogue.ops() if op.full_name == name)


def _outcomes(
    name: str, call: Callable[..., Any] | None = None, dtype: torch.dtype = torch.float32
) -> dict[str, Outcome]:
    options = Options(device="cpu")
    if call is not None:
        options.call = call
    op = _op(name)
    return {o.variant: o for o in [*PairCheck(op, dtype, options).run(), *check_errors(op, options)]}


def _failed(outcomes: dict[str, Outcome]) -> set[str]:
    return {variant for variant, outcome in outcomes.items() if not outcome.passed}


@pytest.mark.parametrize("name", ["add", "sum", "sort", "transpose", "nn.functional.dropout", "empty", "gather"])
def test_a_right_device_passes(name: str) -> None:
    outcomes = _outcomes(name)
    assert "forward" in outcomes
    assert not _failed(outcomes)
    assert all(outcome.samples > 0 for outcome in outcomes.values())


def _change(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., Any]:
    """A device that computes the right thing and then spoils it."""

    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return change(result) if isinstance(result, torch.Tensor) else result

    return call


FAULTS = {
    "values": (lambda t: t + 1e-3, {"forward", "method", "noncontiguous", "neg"}),
    "dtype": (lambda t: t.double(), {"forward", "method", "noncontiguous", "neg"}),
    "shape": (lambda t: t.unsqueeze(0), {"forward", "method", "noncontiguous", "neg"}),
    "nan": (lambda t: t * float("nan"), {"forward", "method", "noncontiguous", "neg"}),
    "strides": (lambda t: t.unsqueeze(-1).repeat(*[1] * t.dim(), 2)[..., 0], {"strides"}),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_wrong_results_are_found(fault: str) -> None:
    change, expected = FAULTS[fault]
    assert expected <= _failed(_outcomes("add", _change(change)))


def test_a_view_that_lost_its_memory_is_found() -> None:
    assert "views" in _failed(_outcomes("transpose", _change(lambda t: t.clone(memory_format=torch.preserve_format))))


def test_other_orders_of_equal_elements_are_accepted_and_wrong_orders_are_not() -> None:
    source = torch.tensor([1.0, 2.0, 2.0])
    arguments = Arguments(source, (), {})
    expected = torch.return_types.sort((source, torch.tensor([0, 1, 2])))
    tied = torch.return_types.sort((source, torch.tensor([0, 2, 1])))
    wrong = torch.return_types.sort((source, torch.tensor([1, 0, 2])))
    twice = torch.return_types.sort((source, torch.tensor([0, 2, 2])))
    assert ties.settle("sort", arguments, tied, expected)[1].tolist() == [0, 1, 2]
    assert ties.settle("sort", arguments, wrong, expected)[1].tolist() == [1, 0, 2]
    assert ties.settle("sort", arguments, twice, expected)[1].tolist() == [0, 2, 2]
    stable = Arguments(source, (), {"stable": True})
    assert ties.settle("sort", stable, tied, expected)[1].tolist() == [0, 2, 1]


def test_an_inplace_form_without_effect_is_found() -> None:
    def call(function: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(function, "__name__", "") == "add_":
            return first
        return function(first, *args, **kwargs)

    assert _failed(_outcomes("add", call)) == {"inplace"}


def test_an_unwritten_out_is_found() -> None:
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return kwargs["out"] if "out" in kwargs else function(*args, **kwargs)

    assert "out" in _failed(_outcomes("add", call))


def test_an_out_whose_resize_does_not_warn_is_found() -> None:
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs:
            kwargs["out"].resize_(0)
        return function(*args, **kwargs)

    outcome = _outcomes("add", call)["out"]
    assert not outcome.passed


def test_a_changed_argument_is_found() -> None:
    def call(function: Callable[..., Any], first: Any, *args: Any, **kwargs: Any) -> Any:
        result = function(first, *args, **kwargs)
        if isinstance(first, torch.Tensor) and not first.requires_grad:
            first.add_(1)
        return result

    assert "forward" in _failed(_outcomes("sum", call))


def test_a_wrong_gradient_is_found() -> None:
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result * 2 - result.detach() if result.requires_grad else result

    assert _failed(_outcomes("mul", call)) == {"backward"}


def test_a_missing_gradient_is_found() -> None:
    outcomes = _outcomes("mul", _change(lambda t: t.detach()))
    assert "backward" in _failed(outcomes)


def test_a_missing_or_other_error_is_found() -> None:
    def swallow(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError:
            return None

    def replace(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise ValueError(str(error)) from error

    def reword(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except RuntimeError as error:
            raise RuntimeError("something went wrong") from error

    assert "errors" in _failed(_outcomes("gather", swallow))
    assert "errors" in _failed(_outcomes("gather", replace))
    failed = _failed(_outcomes("gather", reword))
    assert "error_text" in failed
    assert "errors" not in failed


def test_an_exception_on_the_device_is_found() -> None:
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no such kernel")

    outcome = _outcomes("add", call)["forward"]
    assert outcome.failures == outcome.samples > 0
    assert "no such kernel" in outcome.error


def test_modules_and_optimizers_notice() -> None:
    linear = next(info for info in catalogue.modules() if info.name == "nn.Linear")
    adam = next(info for info in catalogue.optimizers() if info.optim_cls is torch.optim.Adam)
    assert all(o.passed for o in check_module(linear, torch.float32, Options(device="cpu")))
    assert all(o.passed for o in check_optimizer(adam, torch.float32, Options(device="cpu")))

    def spoil_module(function: Callable[..., Any], *args: Any) -> Any:
        run = function(*args)
        run.output = run.output + 1
        return run

    def spoil_optimizer(function: Callable[..., Any], *args: Any) -> Any:
        result = function(*args)
        result["state"][0]["exp_avg"] += 1
        return result

    wrong_module = check_module(linear, torch.float32, Options(device="cpu", call=spoil_module))
    wrong_optimizer = check_optimizer(adam, torch.float32, Options(device="cpu", call=spoil_optimizer))
    assert any(not o.passed for o in wrong_module)
    assert any(not o.passed for o in wrong_optimizer)


def test_movers_keep_strides_sharing_and_bits() -> None:
    base = torch.arange(24.0).reshape(4, 6)
    view, expanded = base.t()[1:3], base[:1].expand(3, 6)
    lazy = torch.tensor([1 + 2j, 3 - 1j]).conj()
    moved = Mover("cpu").move({"base": base, "list": [view, expanded], "lazy": lazy, "again": base})
    check_tree(moved, {"base": base, "list": [view, expanded], "lazy": lazy, "again": base})
    assert moved["again"] is moved["base"]
    assert moved["lazy"].is_conj()
    assert moved["list"][0].stride() == view.stride()
    assert moved["list"][1].stride() == (0, 1)
    assert moved["list"][0].untyped_storage()._cdata == moved["base"].untyped_storage()._cdata
    assert moved["base"].data_ptr() != base.data_ptr()


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        (torch.ones(2), torch.ones(3)),
        (torch.ones(2), torch.ones(2, dtype=torch.float64)),
        (torch.tensor([1, 2]), torch.tensor([1, 3])),
        ((torch.ones(1),), [torch.ones(1)]),
        ([torch.ones(1)], [torch.ones(1), torch.ones(1)]),
        (1, 1.0),
        (None, torch.ones(1)),
        (True, False),
        ({"a": 1}, {"b": 1}),
        (torch.tensor(1, dtype=torch.uint64), torch.tensor(2, dtype=torch.uint64)),
        (torch.tensor(float("nan")), torch.tensor(0.0)),
    ],
)
def test_comparison_refuses(actual: Any, expected: Any) -> None:
    with pytest.raises(Mismatch):
        check_tree(actual, expected)


def test_a_crash_and_a_hang_are_attributed_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FL_TEST_FAULT", "sin:float32:method=kill,cos:float64:forward=sleep")
    tasks = catalogue.tasks(["sin", "cos", "tan"], ["float32", "float64"], ["op"])
    settings = Settings(("forward", "method"), 2, 1, jobs=1, timeout=15, environment={"TORCH_FL_TEST_DEVICE": "cpu"})
    results = Pool(settings).run(tasks)
    failed = {o.key: o.error for o in results.outcomes if not o.passed}
    assert set(failed) == {("sin", "float32", "method"), ("cos", "float64", "forward")}
    assert f"CRASH: exit status -{int(signal.SIGKILL)}" in failed["sin", "float32", "method"]
    assert "HANG" in failed["cos", "float64", "forward"]
    passed = {o.key for o in results.outcomes if o.passed}
    assert {("sin", "float32", "forward"), ("sin", "float64", "method"), ("tan", "float64", "forward")} <= passed
    assert os.getpid() > 0
    assert len(results.calls) == 3


def test_reports_count_exempt_and_find_stale_rows() -> None:
    outcomes = [
        Outcome("add", "float32", "forward", 3),
        Outcome("add", "float32", "out", 3, 1, "bad"),
        Outcome("mul", "float32", "forward", 3, 2, "bad 17"),
        Outcome("mul", "float64", "forward", 3, 2, "bad 18"),
        Outcome("mul", "float32", "backward", 3),
    ]
    calls = {"add": {("add.Tensor", "kernel"): 3, ("add.Tensor", "host"): 1}}
    table = (Exemption("add", "*", "out", "why"), Exemption("mul", "float32", "backward", "fixed since"))
    report = Report(Results(outcomes, calls), table)
    assert report.pairs(forward=True) == (3, 0, 1)
    assert report.pairs(forward=False) == (1, 1, 0)
    assert [o.key for o in report.failures()] == [("mul", "float32", "forward"), ("mul", "float64", "forward")]
    assert report.stale() == [table[1]]
    assert not report.within_limit()
    assert report.as_json()["native_share"] == 0.75
    assert report.causes().count("bad N") == 1  # one cause, not two


# ---- Rounding ---------------------------------------------------------------------------------------------------


def _close(actual: list[float], expected: list[float], exact: list[float], dtype: torch.dtype = torch.bfloat16) -> bool:
    mine = torch.tensor(expected, dtype=dtype)
    wider = torch.tensor(exact, dtype=torch.float64)
    try:
        check_tree(torch.tensor(actual, dtype=dtype), mine, exact=exact_results(mine, wider))
        return True
    except Mismatch:
        return False


def test_a_device_that_rounds_less_is_right_and_one_that_rounds_more_is_not() -> None:
    assert _close([17.0, 1.0], [18.0, 1.0], [17.01, 1.0])  # the CPU rounded on the way
    assert _close([1.0, 5.02], [1.05, 5.0], [1.0, 5.0])  # off by less than the CPU's worst
    assert not _close([18.0, 1.0], [17.0, 1.0], [17.01, 1.0])  # the device did
    assert not _close([15.5, 1.0], [18.0, 1.0], [17.01, 1.0])  # off to the other side, by more than a few roundings
    assert not _close([1.0, 4.0], [9.0, 5.0], [1.0, 5.0])  # however wrong the CPU is: its error excuses a few roundings
    assert not _close([float("nan"), 1.0], [18.0, 1.0], [17.01, 1.0])
    assert _close([17.0, 1.0], [float("inf"), 1.0], [17.01, 1.0])  # the CPU overflowed on the way
    assert not _close([3e38, 1.0], [float("inf"), 1.0], [1e39, 1.0])  # the result does not fit
    assert not _close([1.0 + 1e-4], [1.0], [1.0], torch.float32)


def test_rounding_is_judged_by_the_same_call_in_a_wider_type() -> None:
    """The CPU divides in bfloat16 and truncates the rounded quotient; a device that truncates the quotient is right."""

    def exactly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "out" in kwargs or getattr(function, "__name__", "") == "div_":
            return function(*args, **kwargs)
        wide = [arg.double() if isinstance(arg, torch.Tensor) else arg for arg in args]
        return function(*wide, **kwargs).to(torch.bfloat16)

    def one_off(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = exactly(function, *args, **kwargs)
        return result + 1 if "out" not in kwargs else result

    assert not _failed(_outcomes("div.trunc_rounding", exactly, torch.bfloat16)) & {"forward", "backward"}
    assert "forward" in _failed(_outcomes("div.trunc_rounding", one_off, torch.bfloat16))


def test_a_wrong_gradient_of_a_narrow_type_is_found() -> None:
    def call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        return result * 1.1 - result.detach() * 0.1 if result.requires_grad else result

    assert _failed(_outcomes("mul", call, torch.bfloat16)) == {"backward"}


def test_gradients_of_equal_elements_may_change_places_and_others_may_not() -> None:
    arguments = Arguments(torch.tensor([1.0, 2.0, 2.0]), (), {})
    expected = [torch.tensor([1.0, 2.0, 3.0])]

    def agrees(gradient: list[float]) -> bool:
        ours, theirs = ties.settle_gradients("sort", arguments, [torch.tensor(gradient)], expected)
        return torch.equal(ours[0], theirs[0])

    assert agrees([1.0, 2.0, 3.0])
    assert agrees([1.0, 3.0, 2.0])
    assert not agrees([2.0, 1.0, 3.0])
    assert not agrees([1.0, 2.0, 2.0])


def test_a_strided_out_must_hold_what_the_cpu_writes_or_returns() -> None:
    """The CPU's gelu leaves a strided out= as it was; a device need not, but must write the right thing."""

    def right(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "out" not in kwargs or kwargs["out"].is_contiguous():
            return function(*args, **kwargs)
        return torch.add(function(*args, **{**kwargs, "out": None}), 0, out=kwargs["out"])

    def wrong(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        strided = "out" in kwargs and not kwargs["out"].is_contiguous()
        result = right(function, *args, **kwargs)
        return result.add_(1) if strided else result

    assert "out" not in _failed(_outcomes("nn.functional.silu", right))
    assert "out" not in _failed(_outcomes("nn.functional.gelu", right))
    assert "out" in _failed(_outcomes("nn.functional.gelu", wrong))
