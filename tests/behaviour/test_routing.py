# SPDX-License-Identifier: Apache-2.0
"""Routes, their reasons and counters; the fallback policy; what can be asked about them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.behaviour.agree import DEVICE, HIDDEN_KERNELS
from tests.harness import device as harness

torch_fl = harness.load()
pytestmark = pytest.mark.skipif(torch_fl is None, reason="a stock device has no routes")
ROOT = Path(__file__).resolve().parents[2]
kernels = pytest.mark.skipif(HIDDEN_KERNELS, reason="needs the kernels of sim")
HOST_OP = "poisson"  # an operator that neither sim nor the portable kernels have


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch_fl.set_config("fallback", "allow")
    torch_fl.reset_counters()
    yield
    torch_fl.set_config("fallback", "allow")


def _rows(op: str) -> list:
    return [row for row in torch_fl.counters() if str(row.op).removeprefix("aten::") == op]


@kernels
def test_kernel_calls_are_counted() -> None:
    x = torch.ones(4, device=DEVICE)
    torch_fl.reset_counters()
    for _ in range(5):
        x + x
    rows = _rows("add")
    assert [(row.overload, row.chip, row.device, row.route, row.calls) for row in rows] == [
        ("Tensor", "sim", 0, "kernel", 5)
    ]
    assert rows[0].bytes == 0
    assert rows[0].syncs == 0


def test_host_calls_are_counted_with_bytes_syncs_and_a_reason() -> None:
    x = torch.ones(1000, device=DEVICE)
    torch_fl.reset_counters()
    for _ in range(3):
        torch.poisson(x)
    (row,) = _rows(HOST_OP)
    assert (row.route, row.calls) == ("host", 3)
    assert row.reason
    assert row.syncs >= 3
    assert 3 * 2 * 4000 <= row.bytes <= 3 * 2 * 4096 + 4096 or os.environ.get("SIMCHIP_HOST_COHERENT") == "1"


@kernels
def test_the_reason_tells_apart_why() -> None:
    torch.poisson(torch.ones(2, device=DEVICE))
    no_kernel = _rows(HOST_OP)[0].reason
    assert re.search(r"kernel", no_kernel), no_kernel


def test_counters_tell_devices_apart_and_reset() -> None:
    if torch.accelerator.device_count() < 2:
        pytest.skip("needs two devices")
    for where in ("fl:0", "fl:1"):
        torch.ones(2, device=where) + 1
    assert {row.device for row in _rows("add")} == {0, 1}
    torch_fl.reset_counters()
    assert not [row for row in torch_fl.counters() if row.calls]


def test_counters_of_threads_are_summed() -> None:
    import threading

    def work() -> None:
        x = torch.ones(2, device=DEVICE)
        for _ in range(100):
            x.mul(2)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(row.calls for row in _rows("mul")) == 400


def test_deny_raises_and_says_all() -> None:
    x = torch.ones(2, 3, device=DEVICE, dtype=torch.float64)
    torch_fl.set_config("fallback", "deny")
    with pytest.raises(torch_fl.UnsupportedOpError) as caught:
        torch.poisson(x)
    text = str(caught.value)
    for part in ("aten::poisson", "sim", "fl:0", "float64", "[2, 3]", "TORCH_FL_FALLBACK"):
        assert part in text, f"{part!r} is missing from: {text}"


def test_the_remedy_that_the_error_names_works() -> None:
    x = torch.ones(3, device=DEVICE)
    torch_fl.set_config("fallback", "deny")
    with pytest.raises(torch_fl.UnsupportedOpError) as caught:
        torch.poisson(x)
    remedy = re.search(r"torch_fl\.set_config\([^\n]*?\)(?=[,. ])", str(caught.value))
    assert remedy is not None, f"no call to set_config in: {caught.value}"
    try:
        exec(remedy.group(), {"torch_fl": torch_fl})
        assert torch.poisson(x).shape == (3,)
    finally:
        for key in list(torch_fl.get_config()):
            if key.startswith("fallback."):
                torch_fl.set_config(key, None)


@kernels
def test_deny_lets_kernels_views_and_copies_through() -> None:
    torch_fl.set_config("fallback", "deny")
    x = torch.arange(6.0, device=DEVICE).view(2, 3)
    y = (x.t() @ x + 1).relu().sum(0)
    assert y.cpu().shape == (3,)
    assert x[1, 2].item() == 5
    assert x.to(torch.int32).tolist() == [[0, 1, 2], [3, 4, 5]]


@kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.complex64], ids=str)
def test_what_depends_on_values_stays_on_the_chip(dtype: torch.dtype) -> None:
    """nonzero, masked_select, masks as indices and, through these, printing."""
    here = torch.tensor([[0, 1, 2], [-3, 0, 0], [0, 5, 0]]).to(dtype)
    x = here.to(DEVICE)
    with torch_fl.config(fallback="deny"):
        mask = x != 0
        assert torch.equal(x.nonzero().cpu(), here.nonzero())
        assert torch.equal(x.t().nonzero().cpu(), here.t().nonzero())
        assert torch.equal(x[mask].cpu(), here[here != 0])
        assert torch.equal(x[:, mask[1]].cpu(), here[:, (here != 0)[1]])
        assert torch.equal(x.masked_select(mask[0]).cpu(), here.masked_select((here != 0)[0]))
        assert torch.equal(mask[..., None].nonzero(as_tuple=True)[1].cpu(), (here != 0)[..., None].nonzero()[:, 1])
        x[mask] = 1
        assert repr(x).replace(f", device='{x.device}'", "") == repr(torch.where(here != 0, 1, here).to(dtype))
    assert not [row for row in torch_fl.counters() if row.route == "host" and row.op in ("nonzero", "masked_select")]


@pytest.mark.skipif(not HIDDEN_KERNELS, reason="about a chip without kernels")
def test_without_kernels_what_depends_on_values_is_denied_too() -> None:
    x = torch.ones(3, device=DEVICE)
    with torch_fl.config(fallback="deny"), pytest.raises(torch_fl.UnsupportedOpError, match="aten::nonzero"):
        x.nonzero()


def test_warn_says_it_once_per_operator() -> None:
    torch_fl.set_config("fallback", "warn")
    torch_fl.clear_dispatch_cache()
    x = torch.ones(3, device=DEVICE)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(3):
            torch._standard_gamma(x)
        torch._standard_gamma(torch.ones(4, device=DEVICE))
        torch.poisson(x)
    texts = [str(item.message) for item in seen if "aten::" in str(item.message)]
    assert sum("_standard_gamma" in text for text in texts) == 1
    assert sum("poisson" in text for text in texts) == 1


def test_policy_of_one_operator() -> None:
    x = torch.ones(3, device=DEVICE)
    torch_fl.set_config(f"fallback.aten::{HOST_OP}", "deny")
    try:
        with pytest.raises(torch_fl.UnsupportedOpError):
            torch.poisson(x)
        assert torch._standard_gamma(x).shape == (3,)
        with torch_fl.config(fallback="deny"), pytest.raises(torch_fl.UnsupportedOpError):
            torch._standard_gamma(x)
        assert torch._standard_gamma(x).shape == (3,)
    finally:
        torch_fl.set_config(f"fallback.aten::{HOST_OP}", None)
    assert torch.poisson(x).shape == (3,)


@pytest.mark.parametrize("value", ["forbid", "", None, 3])
def test_a_wrong_policy_is_refused(value: object) -> None:
    with pytest.raises(torch_fl.ConfigError, match="allow"):
        torch_fl.set_config("fallback", value)


def test_the_environment_sets_the_policy() -> None:
    code = "import torch, torch_fl; x = torch.ones(2, device='fl'); torch.poisson(x)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "TORCH_FL_FALLBACK": f"allow,aten::{HOST_OP}=deny"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1
    assert "UnsupportedOpError" in done.stderr


@kernels
def test_query_tells_routes_and_reasons() -> None:
    answer = torch_fl.query_op("aten::add.Tensor")
    (row,) = [row for row in answer.rows if row.chip == "sim"]
    assert row.chosen == "kernel"
    assert row.routes[-1] == "host"
    assert row.kernel is not None
    host = [row for row in torch_fl.query_op(HOST_OP).rows if row.overload == ""]
    assert host[0].chosen == "host"
    assert host[0].kernel is None
    assert "host" in str(torch_fl.query_op(HOST_OP))
    torch_fl.set_config("fallback", "deny")
    denied = [row for row in torch_fl.query_op(HOST_OP).rows if row.overload == ""]
    assert denied[0].chosen is None


def test_query_of_what_does_not_exist_suggests() -> None:
    with pytest.raises(torch_fl.ConfigError, match="softmax"):
        torch_fl.query_op("aten::sofmax")


def test_devices_are_listed() -> None:
    records = torch_fl.list_devices()
    assert [record.device for record in records] == [f"fl:{i}" for i in range(torch.accelerator.device_count())]
    assert all(r.chip == "sim" and r.vendor and r.name and r.memory > 0 for r in records)


def test_registered_operators_are_summed_up() -> None:
    summary = torch_fl.registered_ops_summary()
    if HIDDEN_KERNELS:
        assert not summary.chips.get("sim")
        return
    names = {kernel.op for kernel in summary.chips["sim"]}
    assert {"aten::add.Tensor", "aten::mm", "aten::relu"} <= names
    assert "aten::add.Tensor" in str(summary)


def test_clearing_the_cache_changes_nothing_visible() -> None:
    x = torch.ones(3, device=DEVICE)
    before = (x + 1).tolist()
    torch_fl.clear_dispatch_cache()
    assert (x + 1).tolist() == before


@kernels
def test_the_counters_survive_a_cleared_cache() -> None:
    x = torch.ones(3, device=DEVICE)
    torch_fl.reset_counters()
    x + x
    torch_fl.clear_dispatch_cache()
    x + x
    assert sum(row.calls for row in _rows("add")) == 2


@kernels
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad", "NAdam"])
def test_foreach_optimizers_whose_operators_take_the_host_route(optimizer: str) -> None:
    """The same steps with the kernels of some operators out of reach give the same parameters."""
    code = (
        "import torch, torch_fl\n"
        "torch.manual_seed(0)\n"
        "ps = [torch.nn.Parameter(torch.randn(3, 4).to('fl')), torch.nn.Parameter(torch.randn(5).to('fl'))]\n"
        f"opt = torch.optim.{optimizer}(ps, lr=0.05, foreach=True, weight_decay=0.1)\n"
        "for _ in range(3):\n"
        "    opt.zero_grad(); sum((p * p + p).sum() for p in ps).backward(); opt.step()\n"
        "print('RESULT', [p.detach().cpu().flatten().tolist() for p in ps])\n"
    )
    results = []
    for extra in ({}, {"SIMCHIP_HIDE_KERNELS": "1"}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **extra},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-1500:]
        results.append(eval(done.stdout.split("RESULT")[1]))
    for mine, hidden in zip(*results, strict=True):
        assert mine == pytest.approx(hidden, rel=1e-5, abs=1e-6)


def test_compositions_of_views_and_copies_are_not_host_calls() -> None:
    x = torch.ones(4, 4, device=DEVICE)
    torch_fl.reset_counters()
    torch.select_scatter(x, x[0], 0, 1)
    torch.permute_copy(x, (1, 0))
    torch.diag_embed(x)
    names = {str(row.op).removeprefix("aten::") for row in torch_fl.counters()}
    assert not names & {"select_scatter", "permute_copy", "diag_embed"}


@pytest.mark.skipif(not HIDDEN_KERNELS, reason="about a chip without kernels")
def test_a_chip_without_kernels_runs_composites_in_one_piece() -> None:
    x, w = torch.ones(2, 4, 3, device=DEVICE), torch.ones(4, device=DEVICE)
    torch_fl.reset_counters()
    torch.group_norm(x, 2, w, w)
    torch.addr(x[0], w, x[0, 0])
    calls = {str(row.op).removeprefix("aten::"): row.calls for row in torch_fl.counters() if row.route == "host"}
    assert calls == {"native_group_norm": 1, "addr": 1}
