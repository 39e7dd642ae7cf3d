# SPDX-License-Identifier: Apache-2.0
"""Threads and two devices: nothing is shared that should not be, and order is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import nn

import torch_fl
from tests.framework.helpers import assert_same, needs_two_devices, twin

THREADS = 8


def _run_in_threads(work: Callable[[int], None], threads: int = THREADS) -> None:
    """Call work(0), work(1), ... at the same time; raise the first failure."""
    barrier = threading.Barrier(threads)

    def start(index: int) -> None:
        barrier.wait()
        work(index)

    with ThreadPoolExecutor(threads) as pool:
        for future in [pool.submit(start, index) for index in range(threads)]:
            future.result(timeout=300)


def _mixed_operators(device: str, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(17, 33, generator=generator).to(device)
    w = torch.randn(33, 33, generator=generator).to(device)
    for step in range(10):
        x = (x @ w).tanh() + x * 0.5
        x = torch.where(x > 0, x, x.exp() - 1)
        x = torch.cat([x[1:], x[:1]]).sub(x.mean(0, keepdim=True))
        x = x.softmax(-1) * 10 if step % 3 == 0 else x.index_select(0, torch.arange(16, -1, -1, device=device))
        x[0, ::2] = step
    return x.sort(dim=1).values


@needs_two_devices
def test_mixed_operators_on_two_devices() -> None:
    """Eight threads of mixed operators on two devices compute what the CPU computes."""
    expected = [_mixed_operators("cpu", seed) for seed in range(THREADS)]

    def work(index: int) -> None:
        for _ in range(3):
            assert_same(_mixed_operators(f"fl:{index % 2}", index), expected[index], rtol=1e-3, atol=1e-4)

    _run_in_threads(work)


def test_current_device_and_stream_are_per_thread() -> None:
    """A thread starts on device 0 and its default stream, whatever other threads set."""
    stream = torch.Stream("fl")
    torch.accelerator.set_stream(stream)
    try:

        def work(index: int) -> None:
            assert torch.accelerator.current_stream() == torch.fl.default_stream()
            if torch.fl.device_count() > 1:
                torch.fl.set_device(index % 2)
                assert torch.empty(1, device="fl").device.index == index % 2

        _run_in_threads(work)
        assert torch.accelerator.current_stream() == stream
        assert torch.fl.current_device() == 0
    finally:
        torch.accelerator.set_stream(torch.fl.default_stream())


@needs_two_devices
def test_autograd_across_devices() -> None:
    """A graph that spans two devices gives the CPU's gradients, from several threads at once."""

    def loss(x: torch.Tensor, w: torch.Tensor, first: str, second: str) -> torch.Tensor:
        a = (x.to(first) @ w.to(first)).tanh()
        b = (a.to(second) * 2).softmax(-1)
        return (b.to(first) * a).sum() + (x.to(second) ** 2).sum().to(first)

    def work(index: int) -> None:
        generator = torch.Generator().manual_seed(index)
        x, w = torch.randn(9, 7, generator=generator), torch.randn(7, 7, generator=generator)
        expected = [t.clone().requires_grad_() for t in (x, w)]
        loss(*expected, "cpu", "cpu").backward()
        for _ in range(5):
            actual = [t.to(f"fl:{i}").requires_grad_() for i, t in enumerate((x, w))]
            loss(*actual, "fl:0", "fl:1").backward()
            for found, wanted in zip(actual, expected, strict=True):
                assert found.grad.device == found.device
                assert_same(found.grad, wanted.grad, rtol=1e-4, atol=1e-5)

    _run_in_threads(work, 4)


@needs_two_devices
def test_copies_right_after_producing() -> None:
    """A copy to the other device enqueued right behind the kernel that makes the data carries that data."""

    def work(index: int) -> None:
        source, target = f"fl:{index % 2}", f"fl:{1 - index % 2}"
        for i in range(20):
            x = torch.zeros(50_000, device=source)
            for _ in range(4):
                x += 1
            y = x.to(target, non_blocking=True)
            x.fill_(-1)  # must not overtake the copy
            z = y + i
            assert z.cpu().eq(4 + i).all()

    _run_in_threads(work)


@needs_two_devices
def test_copies_between_side_streams() -> None:
    """Copies between devices are ordered with the current streams of both."""
    for i in range(20):
        with torch.Stream("fl:0"), torch.Stream("fl:1"):
            x = torch.zeros(50_000, device="fl:0")
            x += i
            y = x.to("fl:1") * 2
            back = y.to("fl:0")
            assert back.cpu().eq(2 * i).all()


@needs_two_devices
def test_model_split_over_devices() -> None:
    """A network with its halves on two devices trains like one on the CPU."""
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    split = twin(model, "cpu")
    split[0].to("fl:0")
    split[2].to("fl:1")
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (model, split)]
    x, y = torch.randn(5, 6), torch.randint(3, (5,))
    for _ in range(5):
        expected = nn.functional.cross_entropy(model(x), y)
        hidden = split[1](split[0](x.to("fl:0")))
        loss = nn.functional.cross_entropy(split[2](hidden.to("fl:1")), y.to("fl:1"))
        assert_same(loss, expected, rtol=1e-4, atol=1e-5)
        for optimizer, value in zip(optimizers, (expected, loss), strict=True):
            optimizer.zero_grad()
            value.backward()
            optimizer.step()


def test_allocate_and_free_across_threads() -> None:
    """Tensors made in one thread and freed in another leave the statistics where they were."""
    torch.ones(1, device="fl").sum().item()
    before = torch.fl.memory_allocated()
    made: list[list[torch.Tensor]] = [[] for _ in range(THREADS)]

    def make(index: int) -> None:
        for size in range(1, 200):
            made[index].append(torch.full((size * 37,), float(index), device="fl"))

    def free(index: int) -> None:
        for tensor in made[(index + 1) % THREADS]:
            assert tensor[0].item() == (index + 1) % THREADS
        made[(index + 1) % THREADS] = []

    _run_in_threads(make)
    _run_in_threads(free)
    assert torch.fl.memory_allocated() == before


def test_generators_are_thread_safe() -> None:
    """Threads that draw from one generator get disjoint parts of its sequence."""
    generator = torch.Generator("fl").manual_seed(1)
    drawn: list[torch.Tensor] = []
    lock = threading.Lock()

    def work(_: int) -> None:
        for _ in range(20):
            values = torch.rand(4, device="fl", generator=generator).cpu()
            with lock:
                drawn.append(values)

    _run_in_threads(work)
    replay = torch.Generator("fl").manual_seed(1)
    sequence = {tuple(torch.rand(4, device="fl", generator=replay).tolist()) for _ in range(THREADS * 20)}
    assert {tuple(values.tolist()) for values in drawn} == sequence


def test_streams_from_threads() -> None:
    """Each thread computes on a stream of its own."""

    def work(index: int) -> None:
        with torch.Stream("fl") as stream:
            x = torch.full((10_000,), float(index), device="fl")
            for _ in range(10):
                x = x + 1
            stream.synchronize()
            assert x.cpu().eq(index + 10).all()

    _run_in_threads(work)


def test_work_outlives_the_thread_that_enqueued_it() -> None:
    """Nothing that a queued kernel refers to may go with its thread's plan cache."""
    for _ in range(20):
        results: list[torch.Tensor] = []

        def work(x: torch.Tensor, results: list[torch.Tensor]) -> None:
            for _ in range(50):
                x = x.neg().add(1)
            results.append(x)

        thread = threading.Thread(target=work, args=(torch.zeros(20_000, device="fl"), results))
        thread.start()
        thread.join()
        assert results[0].eq(0).all()


def test_plans_are_dropped_while_their_work_is_queued() -> None:
    x = torch.zeros(20_000, device="fl")
    for i in range(50):
        x = x.neg().add(1)
        torch_fl.clear_dispatch_cache()
        assert i % 10 or x.eq((i + 1) % 2).all()
