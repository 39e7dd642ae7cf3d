# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes, doing what they may not."""

from __future__ import annotations

import pytest

from tests.plugins.helpers import run_python
from tests.plugins.python_chips import PRELUDE, check


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
