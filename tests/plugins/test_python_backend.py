# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes: what they may do, and what happens when they do what they may not."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.plugins.helpers import ROOT, run_python, succeed

PRELUDE = """
import gc, os, threading
import numpy as np, torch, torch_fl

def chip(function=None, name="chip", **options):
    '''Registers a class whose dispatch() is `function`, and returns its first device.'''
    attributes = {k: options.pop(k) for k in ("operators", "supports", "memory", "init_runtime") if k in options}
    def init_runtime(self): pass
    def dispatch(self, op, tensors, params):
        return function(op, tensors, params)
    first = torch.fl.device_count()
    torch_fl.register_backend(name, **options)(
        type("Backend", (), {"init_runtime": init_runtime, "dispatch": dispatch, **attributes}))
    return f"fl:{first}"

def error_of(f, kind=Exception):
    try:
        f()
    except kind as error:
        return error
    raise AssertionError("expected an error")

def routes(op):
    return set(torch_fl.counters().where(op=op).by("route"))

def arrays(op, tensors, params):
    '''Three operators of numpy.'''
    a = [t.numpy() for t in tensors]
    if op == "aten::mm":
        return a[0] @ a[1]
    if op == "aten::add.Tensor":
        return a[0] + np.asarray(a[1] * params["alpha"], a[0].dtype)
    if op == "aten::relu":
        np.maximum(a[0], 0, out=params["out"][0].numpy())
        return params["out"]
"""


def check(code: str, **environment: str) -> str:
    """Run code that asserts, in a process of its own that must end cleanly."""
    return succeed(PRELUDE + textwrap.dedent(code), **environment)


# ---- What works -----------------------------------------------------------------------------------------------------
def test_results_are_those_of_the_cpu() -> None:
    check(
        """
        d = chip(arrays)
        a, b = torch.randn(3, 4), torch.randn(4, 5)
        x, y = a.to(d), b.to(d)
        close = torch.testing.assert_close
        close((x @ y).cpu(), a @ b)
        close((y.t() @ x.t()).cpu(), b.t() @ a.t())              # strides
        close((x + 1).cpu(), a + 1)                              # a number in a tensor's place
        close(torch.add(x, x[0], alpha=3).cpu(), torch.add(a, a[0], alpha=3))  # broadcast
        close((x + torch.arange(4, device=d)).cpu(), a + torch.arange(4))      # promoted
        close(x.relu().cpu(), a.relu())                          # written in place
        z = x.clone(); z += x; z.relu_()
        close(z.cpu(), (a + a).relu())
        out = torch.empty(0, device=d); torch.mm(x, y, out=out)
        close(out.cpu(), a @ b)
        assert torch.mm(x[:0], y).shape == (0, 5)
        for op in ("aten::mm", "aten::relu"):
            assert routes(op) == {"kernel"}, (op, routes(op))
        assert "kernel" in routes("aten::add")
        close(x.exp().cpu(), a.exp())                            # None: routed on
        (row,) = torch_fl.counters().where(op="aten::exp")
        assert row.route == "host" and "dispatch() returned None" in row.reason, row
        with torch_fl.config(fallback="deny"):
            assert "dispatch() returned None" in str(error_of(x.exp, torch_fl.UnsupportedOpError))
        row = torch_fl.query_op("aten::uniform_").rows[-1]       # draws numbers: not asked for
        assert row.chip == "chip" and row.kernel is None
        row = [r for r in torch_fl.query_op("aten::exp").rows if r.chip == "chip" and not r.overload][0]
        assert row.kernel.checks_call and row.routes == ("kernel", "host"), row
        """
    )


def test_what_dispatch_gets() -> None:
    check(
        """
        seen = {}
        def look(op, tensors, params):
            assert [v.name for v in params["out"]] == ["out"] * len(params["out"])
            seen[op] = [(t.name, t.dtype, t.shape, t.strides, t.number) for t in tensors], {
                k: v for k, v in params.items() if k != "out"}
        d = chip(look)
        x = torch.ones(2, 3, device=d)
        torch.cat([x, x.double()])
        (x > 2.5)
        torch.sum(x, [1], True, dtype=torch.float64)
        torch.conv1d(x.reshape(1, 2, 3), torch.ones(4, 2, 1, device=d), stride=2)
        x.to(torch.bfloat16).add(1)
        assert [t[:3] for t in seen["aten::cat"][0]] == [("tensors", "float32", (2, 3)), ("tensors", "float64", (2, 3))]
        assert seen["aten::gt.Scalar"] == ([("self", "float32", (2, 3), (3, 1), None)], {"other": 2.5})
        params = seen["aten::sum.dim_IntList"][1]
        assert params == {"dim": [1], "keepdim": True, "dtype": "float64"}, params
        conv, = [v for k, v in seen.items() if "convolution" in k]
        assert conv[1]["bias"] is None and conv[1]["stride"][-1] == 2, conv
        assert seen["aten::add.Tensor"][0][1] == ("other", "bfloat16", (), (), 1), seen["aten::add.Tensor"]
        """
    )


def test_bfloat16_torch_and_several_outputs() -> None:
    check(
        """
        def compute(op, tensors, params):
            if op == "aten::mul.Tensor":
                a, b = tensors
                try:
                    a.numpy()
                except TypeError as error:
                    assert "numpy has no bfloat16; bits()" in str(error)
                    assert a.bits().dtype == np.uint16
                return a.torch() * b.torch()
            if op == "aten::sort.stable":
                return torch.sort(tensors[0].torch(), dim=params["dim"], descending=params["descending"])[:2]
            if op == "aten::neg":
                params["out"][0].write(-tensors[0].torch())
                return params["out"]
        d = chip(compute)
        x = torch.randn(5, dtype=torch.bfloat16)
        assert torch.equal((x.to(d) * x.to(d)).cpu(), x * x)
        assert torch.equal((x.to(d) * 3).cpu(), x * 3)
        assert torch.equal((-x.to(d)).cpu(), -x)
        values, indices = x.to(d).sort()
        assert torch.equal(values.cpu(), x.sort()[0]) and torch.equal(indices.cpu(), x.sort()[1])
        assert routes("aten::mul") == routes("aten::sort") == routes("aten::neg") == {"kernel"}
        """
    )


def test_operators_dtypes_and_supports() -> None:
    check(
        """
        asked = set()
        def compute(op, tensors, params):
            asked.add(op)
            return arrays(op, tensors, params)
        def supports(self, op, tensors, params):
            return tensors[0].shape[0] < 10 or "at most 9 rows"
        d = chip(compute, operators={"aten::mm": ["float32"], "relu": None, "aten::addmm": []}, supports=supports,
                 dtypes=[torch.float32, "float64"], vendor="me", device_type="npu")
        x = torch.ones(4, 4, device=d)
        (x @ x).exp()
        x.double() @ x.double()
        torch.ones(20, 4, device=d) @ x
        assert asked == {"aten::mm"}, asked
        assert {(r.route, r.reason) for r in torch_fl.counters().where(op="aten::mm")} == {
            ("kernel", "the chip's kernel"), ("host", "the kernel does not compute in float64"),
            ("host", "at most 9 rows")}
        row = next(r for r in torch_fl.query_op("aten::mm").rows if r.chip == "chip" and not r.overload)
        assert row.kernel.dtypes == ("float32",) and row.kernel.checks_call and row.chosen == "kernel"
        exp = [r for r in torch_fl.query_op("aten::exp").rows if r.chip == "chip" and not r.overload]
        assert exp[0].kernel is None
        torch.addmm(x, x, x)
        assert "aten::addmm" in asked
        record = torch_fl.list_devices()[-1]
        assert (record.vendor, record.dtypes, record.chip) == ("me", ("float32", "float64"), "chip")
        """
    )


def test_listed_random_operators_get_their_numbers() -> None:
    check(
        """
        seen = []
        def draw(op, tensors, params):
            seen.append((params["philox_seed"], params["philox_offset"]))
            params["out"][0].write(torch.full(tensors[0].shape, 0.25))
            return params["out"]
        d = chip(draw, operators=["aten::uniform_"])
        generator = torch.Generator(d).manual_seed(3)
        x = torch.empty(8, device=d).uniform_(generator=generator)
        x.uniform_(generator=generator)
        assert x.tolist() == [0.25] * 8 and seen == [(3, 0), (3, 2)], seen
        """
    )


def test_training_and_the_autograd_thread() -> None:
    check(
        """
        names = set()
        def compute(op, tensors, params):
            names.add(threading.current_thread().name)
            return arrays(op, tensors, params)
        d = chip(compute)
        torch.manual_seed(0)
        reference = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
        import copy
        model = copy.deepcopy(reference).to(d)
        data = torch.randn(16, 6)
        for m, x in ((reference, data), (model, data.to(d))):
            optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
            for _ in range(3):
                optimizer.zero_grad(); m(x).square().mean().backward(); optimizer.step()
        for p, q in zip(model.parameters(), reference.parameters()):
            torch.testing.assert_close(p.cpu(), q)
        assert len(names) == 2, names
        """
    )


@pytest.mark.parametrize("plugins", ["sim", ""])
def test_registered_after_a_backward_pass(plugins: str) -> None:
    """Autograd's threads were counted by then."""
    code = """
        torch.ones(2, requires_grad=True).sum().backward()
        d = chip(arrays, devices=3)
        for i in range(int(d[3:]), int(d[3:]) + 3):
            x = torch.randn(4, 4, device=f"fl:{i}", requires_grad=True)
            ((x @ x) + x).relu().sum().backward()
            assert x.grad.device.index == i
        assert torch.fl.device_count() == int(d[3:]) + 3 == torch.accelerator.device_count()
        """
    check(code, **({} if plugins else {"TORCH_FL_PLUGIN_PATH": ""}))


def test_several_devices_are_several_instances() -> None:
    check(
        """
        made = []
        @torch_fl.register_backend("many", devices=2)
        class Many:
            def __init__(self):
                made.append(self)
            def init_runtime(self):
                return {"name": f"number {self.device_index}", "compute_units": 7, "peak_flops": 10}
            def dispatch(self, op, tensors, params):
                if op == "aten::relu":
                    return np.full(tensors[0].shape, self.device_index, np.float32)
        first = torch.fl.device_count() - 2
        assert len(made) == 2
        for i in range(2):
            assert torch.zeros(2, device=f"fl:{first + i}").relu().tolist() == [i, i]
        names = [r.name for r in torch_fl.list_devices()][-2:]
        assert names == ["number 0", "number 1"], names
        assert torch.fl.get_device_properties(first).multi_processor_count == 7
        x = torch.arange(4.0, device=f"fl:{first}").to(f"fl:{first + 1}")
        assert x.tolist() == [0, 1, 2, 3]
        """
    )


def test_manual_seed_before_registration_holds() -> None:
    check(
        """
        torch.manual_seed(5)
        d = chip(arrays)
        x = torch.rand(4, device=d)
        torch.manual_seed(5)
        assert torch.equal(x, torch.rand(4, device=d))
        """
    )


def test_another_package_may_register_while_torch_is_imported(tmp_path: Path) -> None:
    """It has an entry point of PyTorch's, which comes before torch_fl's by name."""
    (tmp_path / "a_chip.py").write_text(
        textwrap.dedent(
            """
            import torch_fl

            @torch_fl.register_backend("early")
            class Early:
                def init_runtime(self): pass
                def dispatch(self, op, tensors, params): return None

            def autoload(): pass
            """
        )
    )
    info = tmp_path / "a_chip-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a_chip\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\na_chip = a_chip:autoload\n")
    path = f"{tmp_path}:{ROOT}"
    code = "import torch, torch_fl; print([d.chip for d in torch_fl.list_devices()], torch.ones(2, device='fl').sum())"
    assert "'early'" in succeed(code, PYTHONPATH=path)
    code = "import a_chip, torch; print(torch.fl.device_count())"
    assert int(succeed(code, PYTHONPATH=path, TORCH_DEVICE_BACKEND_AUTOLOAD="0")) >= 1


# ---- Memory ---------------------------------------------------------------------------------------------------------
BOARD = """
class Board(torch_fl.MemoryAllocator):
    alignment = 512
    total_memory = 64 << 20
    host_coherent = False
    def __init__(self):
        self.blocks, self.next, self.log = {}, 1 << 40, []
    def padded_size(self, nbytes):
        return nbytes + 100
    def allocate(self, nbytes):
        self.log.append(nbytes)
        if sum(map(len, self.blocks.values())) + nbytes > self.total_memory // 2:
            raise MemoryError("the board is full")
        address, self.next = self.next, self.next + (nbytes + 511) // 512 * 512
        self.blocks[address] = bytearray(nbytes)
        return address
    def free(self, address):
        del self.blocks[address]
    def at(self, address):
        start = max(b for b in self.blocks if b <= address)
        return memoryview(self.blocks[start])[address - start:]
    def copy_in(self, address, data):
        self.at(address)[:len(data)] = data
    def copy_out(self, address, into):
        into[:] = self.at(address)[:len(into)]
"""


def test_memory_that_the_host_cannot_address() -> None:
    check(
        BOARD
        + textwrap.dedent(
            """
            board = Board()
            def compute(op, tensors, params):
                error = error_of(tensors[0].numpy, TypeError)
                assert "the host cannot reach the memory of fl:" in str(error), error
                if op == "aten::relu":
                    return np.maximum(tensors[0].to_host(), 0)
                if op == "aten::add.Tensor":
                    a, b = map(np.asarray, tensors)
                    params["out"][0].write(a + b)
                    return params["out"]
            d = chip(compute, memory=board)
            a = torch.randn(4, 5)
            x = a.to(d)
            torch.testing.assert_close(x.relu().cpu(), a.relu())
            torch.testing.assert_close((x + x[0]).cpu(), a + a[0])
            torch.testing.assert_close((x + 2).cpu(), a + 2)
            torch.testing.assert_close(x.clone().exp().t().contiguous().cpu(), a.exp().t())
            assert routes("aten::relu") == {"kernel"} and "kernel" in routes("aten::add")
            assert all(n % 512 == 100 for n in board.log), board.log
            error = error_of(lambda: torch.empty(40 << 20, dtype=torch.uint8, device=d), torch.OutOfMemoryError)
            assert "the board is full" in str(error), error
            del x
            gc.collect(); torch.fl.empty_cache()
            assert not board.blocks and torch.fl.memory_reserved(d) == 0
            """
        )
    )


def test_buffers_and_pinned_memory() -> None:
    check(
        """
        class Pages(torch_fl.MemoryAllocator):
            alignment = 16
            pinned, freed = [], []
            def allocate(self, nbytes):
                return np.empty(nbytes, np.uint8)
            def allocate_pinned(self, nbytes):
                self.pinned.append(nbytes)
                self.block = np.empty(nbytes, np.uint8)
                return int(self.block.ctypes.data)
            def free_pinned(self, address):
                self.freed.append(address)
        d = chip(arrays, memory=Pages)
        torch.fl.set_device(d)
        x = torch.ones(1000).pin_memory()
        assert x.is_pinned() and Pages.pinned
        assert (x.to(d, non_blocking=True) + 1).sum().item() == 2000
        del x
        torch.fl.empty_host_cache()
        assert Pages.freed
        torch.fl.empty_cache()
        """
    )


@pytest.mark.parametrize(
    "body, text",
    [
        ("return 'memory'", "allocate(.*) returned str, expected an address or an object with a writable"),
        ("return bytearray(3)", "returned a buffer of 3 bytes"),
        ("return -1", "returned -1, expected an address"),
        ("return None", "returned NoneType"),
        ("return 8", "alloc returned the address 0x8, but a multiple of 64"),
        ("return b'x' * nbytes", "expected an address or an object with a writable"),
        ("return 1 / 0", "ZeroDivisionError: division by zero"),
        ("return torch.ones(3, device=d).data_ptr()", "used that device"),
    ],
)
def test_allocators_that_fail(body: str, text: str) -> None:
    output = check(
        f"""
        class Bad(torch_fl.MemoryAllocator):
            def allocate(self, nbytes):
                {body}
        d = chip(arrays, memory=Bad)
        for _ in range(2):
            error = error_of(lambda: torch.ones(3, device=d), RuntimeError)
            print(error)
        if "ZeroDivision" in {text!r}:
            assert isinstance(error.__cause__, ZeroDivisionError), error.__cause__
        if torch.fl.device_count() > 1:
            assert torch.ones(3, device="fl:0").sum().item() == 3
        """
    )
    assert re.search(text, output), output


def test_an_allocator_frees_tensors_while_it_is_called() -> None:
    check(
        """
        kept = []
        class Frees(torch_fl.MemoryAllocator):
            alignment = 16
            def allocate(self, nbytes):
                kept.clear()
                gc.collect()
                return np.empty(nbytes, np.uint8)
        d = chip(arrays, memory=Frees)
        kept += [torch.ones(3, device=d) for _ in range(3)]
        before = torch.fl.memory_allocated(d)
        big = torch.ones(32 << 20, dtype=torch.uint8, device=d)
        more = torch.ones(3, device=d)
        assert before == 3 * 512 and torch.fl.memory_allocated(d) == (32 << 20) + 512
        """
    )


def test_threads_that_free_while_python_allocates() -> None:
    """One holds the allocator's lock and wants the interpreter, the other the reverse."""
    check(
        """
        import time
        class Slow(torch_fl.MemoryAllocator):
            alignment = 16
            def allocate(self, nbytes):
                time.sleep(0.002)
                return np.empty(nbytes, np.uint8)
        d = chip(arrays, memory=Slow)
        def work():
            for i in range(60):
                x = torch.empty((30 << 20) + 512 * i, dtype=torch.uint8, device=d)
                y = [torch.empty(10, device=d) for _ in range(10)]
                del x, y
                if i % 10 == 0:
                    torch.fl.empty_cache()
                    torch.fl.memory_stats(d)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        """
    )


# ---- What fails -----------------------------------------------------------------------------------------------------
def test_exceptions_of_dispatch_are_chained() -> None:
    check(
        """
        class Own(Exception): pass
        def fail(op, tensors, params):
            if op == "aten::mm" or op == "aten::relu":
                raise Own("the chip is on fire")
        d = chip(fail, name="burning")
        x = torch.ones(2, 2, device=d, requires_grad=True)
        error = error_of(lambda: x @ x, RuntimeError)
        what = "dispatch of aten::mm(self float32[2, 2], mat2 float32[2, 2]) failed: "
        assert f"burning ({d}): {what}" in str(error)
        assert "Own: the chip is on fire" in str(error)
        assert type(error.__cause__) is Own
        error = error_of(lambda: torch.relu_(torch.ones(2, device=d)), RuntimeError)
        assert type(error.__cause__) is Own
        y = torch.ones(2, 2, device=d) + x
        error = error_of(lambda: torch.ops.aten.mm.out(x.detach(), x.detach(), out=torch.empty(2, 2, device=d)))
        assert type(error.__cause__) is Own
        assert (x + 1).sum().item() == 8     # goes on
        """
    )


def test_exceptions_on_the_autograd_thread() -> None:
    check(
        """
        thread = {}
        def fail(op, tensors, params):
            if op == "aten::mm" and threading.current_thread() is not threading.main_thread():
                thread["name"] = threading.current_thread().name
                raise ValueError("backward only")
            return arrays(op, tensors, params)
        d = chip(fail)
        x = torch.ones(2, 2, device=d, requires_grad=True)
        loss = (x @ x).sum()
        error = error_of(loss.backward, RuntimeError)
        assert "aten::mm" in str(error) and type(error.__cause__) is ValueError and thread
        del loss
        (x + x).sum().backward()
        assert x.grad.sum().item() == 8
        """
    )


def test_keyboard_interrupt_and_exit_pass_through() -> None:
    check(
        """
        def fail(op, tensors, params):
            if op == "aten::mm":
                raise KeyboardInterrupt("stop")
            if op == "aten::relu":
                raise SystemExit(5)
        d = chip(fail)
        x = torch.ones(2, 2, device=d)
        assert "stop" in str(error_of(lambda: x @ x, KeyboardInterrupt))
        assert error_of(lambda: x.relu(), SystemExit).code == 5
        """
    )


RESULTS = {
    "np.ones((3, 2), np.float32)": "ValueError: the result does not fit: the shape is [3, 2], expected [2, 3]",
    "np.ones((2, 3))": "TypeError: the result does not fit: the dtype is float64, expected float32",
    "np.ones((2, 3), '>f4')": "the dtype is float32, expected float32",
    "'text'": "TypeError: the result does not fit: str, expected an array or a tensor on the CPU",
    "1.0": "float, expected an array",
    "object()": "object, expected an array",
    "()": "ValueError: it returned 0 results, expected 1",
    "[np.ones((2, 3), np.float32)] * 2": "it returned 2 results, expected 1",
    "torch.ones(2, 3, device='fl')": "expected an array or a tensor on the CPU",
    "[None]": "NoneType, expected an array",
    "tensors[0].write(tensors[0].numpy())": "is an input and cannot be written",
    "tensors[0].numpy().__setitem__(0, 1)": "ValueError: assignment destination is read-only",
    "params['out'][0].write(np.ones(2, np.float32))": "the shape is [2], expected [2, 3]",
}


def test_results_that_do_not_fit() -> None:
    check(
        f"""
        expected = {RESULTS!r}
        current = None
        def answer(op, tensors, params):
            if op == "aten::relu":
                return eval(current, globals(), dict(locals()))
        d = chip(answer)
        x = torch.ones(2, 3, device=d)
        for current, text in expected.items():
            error = error_of(x.relu, RuntimeError)
            assert text in str(error) and "dispatch of aten::relu(self float32[2, 3])" in str(error), (current, error)
        current = "np.ones((2, 3), np.float32)"
        assert x.relu().sum().item() == 6
        """
    )


def test_deletions_do_no_harm() -> None:
    check(
        """
        def vandal(op, tensors, params):
            result = np.maximum(tensors[0].numpy(), 0) if op == "aten::relu" else None
            tensors.clear()
            params["out"].clear()
            params.clear()
            return result
        d = chip(vandal)
        assert torch.ones(3, device=d).relu().sum().item() == 3
        assert torch.ones(3, device=d).exp().sum().item() > 8
        """
    )


def test_views_end_with_the_call() -> None:
    check(
        """
        import weakref
        class Pages(torch_fl.MemoryAllocator):
            alignment, pages = 16, []
            def allocate(self, nbytes):
                page = np.empty(nbytes, np.uint8)
                self.pages.append(weakref.ref(page))
                return page
        kept = []
        def keep(op, tensors, params):
            if op == "aten::relu":
                kept.append(tensors[0])
                return np.maximum(tensors[0].numpy(), 0)
            if op == "aten::neg":
                kept.append(tensors[0].numpy())
                return -kept[-1]
            if op == "aten::abs":
                kept.append(params["out"][0].torch())
                kept[-1].fill_(7)
                return params["out"]
        d = chip(keep, memory=Pages)
        x = torch.ones(3, device=d)
        assert x.relu().sum().item() == 3
        view = kept.pop()
        for use in (view.numpy, view.torch, view.to_host, lambda: view.address, lambda: np.asarray(view)):
            error = error_of(use, RuntimeError)
            assert "belongs to a call of aten::relu that is over" in str(error), error
        assert "float32" in repr(view)
        for op, what in ((torch.neg, "self"), (torch.abs, "out")):
            error = error_of(lambda: op(x), RuntimeError)
            assert f"kept an array of {what} after the call" in str(error), error
        del x
        gc.collect(); torch.fl.empty_cache()
        assert kept[0].sum() is not None        # readable for ever: the memory is still there
        Pages.live = lambda: [p for p in Pages.pages if p() is not None]
        assert Pages.live() and torch.fl.memory_reserved(d) == 0
        kept.clear(); del error
        x = torch.ones(3, device=d)
        del x
        torch.fl.empty_cache()
        assert not Pages.live()
        """
    )


def test_a_dispatch_that_computes_on_the_device() -> None:
    check(
        """
        depth = []
        def compute(op, tensors, params):
            if op == "aten::relu":
                x = tensors[0].torch().to(d)     # the chip uses itself
                return torch.add(x, x).cpu()
            if op == "aten::exp":                # without end
                depth.append(1)
                return torch.exp(torch.ones(2, device=d)).cpu()
            return arrays(op, tensors, params)
        d = chip(compute)
        assert torch.ones(3, device=d).relu().tolist() == [2, 2, 2]
        error = error_of(lambda: torch.ones(2, device=d).exp(), RuntimeError)
        assert "dispatch() calls itself without end: 32 calls are inside" in str(error) and len(str(error)) < 900, error
        assert 1 < len(depth) < 200
        assert torch.ones(3, device=d).relu().tolist() == [2, 2, 2]
        """
    )


def test_init_runtime_that_fails_stops_that_device_only() -> None:
    check(
        """
        tries = []
        def init_runtime(self):
            tries.append(1)
            if len(tries) == 1:
                raise OSError("no board in the slot")
            if len(tries) == 2:
                return {"colour": "red"}
            if len(tries) == 3:
                return 5
            if len(tries) == 4:
                torch.ones(2, device=d)
        other = chip(arrays, name="other")
        d = chip(arrays, init_runtime=init_runtime)
        make = lambda: torch.ones(2, device=d)
        error = error_of(make, RuntimeError)
        assert f"chip device {d}: opening the device failed" in str(error) and "no board in the slot" in str(error)
        assert type(error.__cause__) is OSError
        assert "property 'colour'" in str(error_of(make, RuntimeError))
        assert "returned int, expected None or a dict" in str(error_of(make, RuntimeError))
        assert "used that device" in str(error_of(make, RuntimeError))
        assert torch.ones(2, device=other).sum().item() == 2
        assert make().sum().item() == 2 and len(tries) == 5
        """
    )


def test_supports_that_fails() -> None:
    check(
        """
        answer = None
        def supports(self, op, tensors, params):
            if op != "aten::relu":
                return False
            return answer(tensors)
        d = chip(arrays, supports=supports)
        x = torch.ones(2, 2, device=d)
        cases = ((lambda t: 3, "it returned int, expected True, False or a reason"),
                 (lambda t: 1 / 0, "ZeroDivisionError"), (lambda t: t[0].numpy(), "before there is memory"))
        for answer, text in cases:
            error = error_of(x.relu, RuntimeError)
            assert "supports() for aten::relu(self float32[2, 2]) failed" in str(error) and text in str(error), error
        answer = lambda t: False
        assert x.relu().sum().item() == 4
        assert routes("aten::relu") == {"host"}
        """
    )


def test_several_threads() -> None:
    check(
        """
        d = chip(arrays)
        a = torch.randn(32, 32)
        failures = []
        def work():
            x = a.to(d).requires_grad_()
            for _ in range(20):
                x.grad = None
                ((x @ x) + x).relu().sum().backward()
            r = a.clone().requires_grad_()
            ((r @ r) + r).relu().sum().backward()
            if not torch.allclose(x.grad.cpu(), r.grad, atol=1e-4): failures.append(1)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads: t.start()
        for t in threads: t.join()
        assert not failures
        """
    )


def test_fork_and_data_loaders() -> None:
    check(
        """
        d = chip(arrays)
        child = os.fork()
        if child == 0:                         # not used yet: the child may
            assert torch.ones(3, device=d).relu().sum().item() == 3
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        x = torch.ones(3, device=d)
        child = os.fork()
        if child == 0:
            assert "spawn" in str(error_of(lambda: x + 1, RuntimeError))
            del x
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
        loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=1, pin_memory=True)
        assert sum((batch.to(d) + x[:1]).sum().item() for (batch,) in loader) == 66 + 12
        """
    )


@pytest.mark.parametrize(
    "code",
    [
        "x = torch.ones(4, 4, device=d, requires_grad=True); (x @ x).sum().backward()",
        "import atexit; x = torch.ones(4, device=d); atexit.register(lambda: x.relu())",
        "import atexit; atexit.register(lambda: torch.ones(4, device=d).relu())",
        "class Late:\n    def __init__(self): self.x = torch.ones(4, device=d)\n"
        "    def __del__(self):\n        try: self.x.relu()\n        except RuntimeError: pass\nlate = Late()",
        "import sys; sys.late = torch.ones(4, device=d)",
    ],
)
def test_the_end_of_a_process(code: str) -> None:
    result = run_python(PRELUDE + "d = chip(arrays)\n" + code)
    assert result.returncode == 0, f"exit status {result.returncode}\n{result.stdout}\n{result.stderr}"


# ---- Registering ----------------------------------------------------------------------------------------------------
def test_what_cannot_be_registered() -> None:
    check(
        """
        class Good:
            def init_runtime(self): pass
            def dispatch(self, op, tensors, params): pass
        def like(**attributes):
            return type("Like", (Good,), attributes)
        def fails(kind, text, cls=Good, name="mychip", **options):
            error = error_of(lambda: torch_fl.register_backend(name, **options)(cls), kind)
            assert text in str(error), error
        before = torch.fl.device_count()
        fails(TypeError, "takes the chip's name", name=Good)
        fails(ValueError, "letters, digits", name="my chip")
        fails(ValueError, "letters, digits", name="")
        fails(ValueError, "devices is 0", devices=0)
        fails(ValueError, "devices is True", devices=True)
        fails(ValueError, "device_type is 'A B'", device_type="A B")
        fails(ValueError, "no dtype 'float31'; did you mean 'float32'", dtypes=["float31"])
        fails(TypeError, "decorates a class, found int", cls=3)
        fails(TypeError, "has no method dispatch", cls=type("Less", (), {"init_runtime": print}))
        fails(TypeError, "cannot be called as init_runtime", cls=like(init_runtime=3))
        fails(TypeError, "cannot be called as supports", cls=like(supports=True))
        fails(TypeError, "Like() failed: TypeError", cls=like(__init__=lambda self, x: None))
        fails(TypeError, "memory is of type int", cls=like(memory=5))
        fails(TypeError, "has no method allocate", cls=like(memory=torch_fl.MemoryAllocator))
        odd = type("Odd", (torch_fl.MemoryAllocator,), {"allocate": print, "alignment": 3})
        fails(ValueError, "alignment is 3, but a power of two", cls=like(memory=odd))
        odd = type("Odd", (torch_fl.MemoryAllocator,), {"allocate": print, "total_memory": "1GB"})
        fails(ValueError, "total_memory is '1GB'", cls=like(memory=odd))
        odd = type("Odd", (torch_fl.MemoryAllocator,), {"allocate": print, "host_coherent": False})
        fails(TypeError, "has no method copy_in", cls=like(memory=odd))
        fails(TypeError, "expected a list of names", cls=like(operators="aten::mm"))
        fails(TypeError, "operators names 3", cls=like(operators=[3]))
        fails(ValueError, "twice", cls=like(operators=["mm", "aten::mm"]))
        fails(ValueError, "aten::mmm, which does not exist; did you mean", cls=like(operators=["aten::mmm"]))
        fails(ValueError, "aten::add, which has overloads; name one: ", cls=like(operators=["aten::add"]))
        fails(ValueError, "is a form of aten::add.Tensor", cls=like(operators=["aten::add_.Tensor"]))
        fails(ValueError, "is a form of aten::mm;", cls=like(operators=["aten::mm.out"]))
        fails(ValueError, "does not return tensors only", cls=like(operators=["aten::_local_scalar_dense"]))
        fails(ValueError, "no dtype 'half'", cls=like(operators={"aten::mm": ["half"]}))
        fails(ValueError, "at most 64 can be used", devices=64) if before else None
        assert torch.fl.device_count() == before
        register = torch_fl.register_backend("mychip")
        assert register(Good) is Good
        fails(ValueError, "a chip named mychip has been loaded already")
        assert torch.fl.device_count() == before + 1
        assert [p.loaded for p in torch_fl.list_plugins() if p.source == "register_backend"][-1] is False
        """
    )


def test_graph_compile_is_kept() -> None:
    check(
        """
        from torch_fl.chips.python_backend import graph_compilers
        class Good:
            def init_runtime(self): pass
            def dispatch(self, op, tensors, params): pass
            def graph_compile(self, graph): return graph
        torch_fl.register_backend("mychip", devices=2)(Good)
        assert [f(3) for f in graph_compilers("mychip")] == [3, 3] and graph_compilers("sim") == ()
        """
    )


def test_the_example_learns() -> None:
    output = succeed(f"import runpy; runpy.run_path({str(ROOT / 'examples' / 'numpy_chip.py')!r}, run_name='__main__')")
    for op in ("mm", "add", "relu"):
        assert re.search(rf"^.*\baten::{op}_?[. ].*numpy.*\bkernel\b", output, re.M), output
    accuracy = re.search(r"accuracy ([\d.]+)", output)
    assert accuracy is not None
    assert float(accuracy[1]) >= 0.93
