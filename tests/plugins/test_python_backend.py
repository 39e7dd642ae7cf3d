# SPDX-License-Identifier: Apache-2.0
"""Chips that are Python classes: what they may do, and how they are registered."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

from tests.plugins.helpers import ROOT, succeed
from tests.plugins.python_chips import check


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
