# SPDX-License-Identifier: Apache-2.0
"""Memory of chips that are Python classes."""

from __future__ import annotations

import re
import textwrap

import pytest

from tests.plugins.python_chips import check

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
