# SPDX-License-Identifier: Apache-2.0
"""Random numbers: generators, their state, and who draws from which."""

from __future__ import annotations

import copy

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from tests.framework.helpers import needs_two_devices


def test_state_is_seed_and_offset() -> None:
    """The state is 16 bytes: the seed, then the offset, which counts words in multiples of four."""
    generator = torch.Generator("fl").manual_seed(0x0123456789ABCDEF)
    state = generator.get_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    assert state.view(torch.int64).tolist() == [0x0123456789ABCDEF, 0]
    torch.rand(5, device="fl", generator=generator)
    assert generator.get_state().view(torch.int64).tolist() == [0x0123456789ABCDEF, 8]
    assert generator.get_offset() == 8


def test_state_round_trip() -> None:
    """Setting a state replays the numbers drawn since."""
    generator = torch.Generator("fl").manual_seed(3)
    torch.randn(7, device="fl", generator=generator)
    state = generator.get_state()
    first = torch.randn(9, device="fl", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.randn(9, device="fl", generator=generator), first)
    clone = generator.clone_state() if hasattr(generator, "clone_state") else copy.deepcopy(generator)
    assert torch.equal(torch.rand(4, device="fl", generator=clone), torch.rand(4, device="fl", generator=generator))


def test_bad_states_are_refused() -> None:
    """A state of a wrong type, size or offset raises what stock generators raise."""
    generator = torch.Generator("fl")
    with pytest.raises(TypeError, match=r"RNG state must be a torch\.ByteTensor"):
        generator.set_state(torch.zeros(2, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(torch.zeros(15, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(6)
    with pytest.raises(RuntimeError, match="invalid device index"):
        torch.Generator("fl:40")


def test_generator_of_another_device_type_is_refused() -> None:
    """A CPU generator cannot serve an fl tensor, nor the other way round."""
    with pytest.raises(RuntimeError, match="Expected a 'fl' device type for generator"):
        torch.empty(3, device="fl").uniform_(generator=torch.Generator())
    with pytest.raises(RuntimeError, match="'cpu'"):
        torch.empty(3).uniform_(generator=torch.Generator("fl"))


def test_manual_seed_reaches_every_device() -> None:
    """torch.manual_seed seeds the default generators of all fl devices."""
    torch.manual_seed(11)
    first = [torch.randn(5, device=f"fl:{i}").cpu() for i in range(torch.fl.device_count())]
    torch.manual_seed(11)
    again = [torch.randn(5, device=f"fl:{i}").cpu() for i in range(torch.fl.device_count())]
    for a, b in zip(first, again, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, first[0])
    assert torch.fl.initial_seed() == 11


@needs_two_devices
def test_generator_device() -> None:
    """A generator belongs to the device that was named."""
    generator = torch.Generator(device="fl:1")
    assert generator.device == torch.device("fl:1")
    assert torch.rand(3, device="fl:1", generator=generator).device.index == 1


def test_dropout_honours_the_seed() -> None:
    """Dropout draws from the default generator: the same seed, the same mask."""
    x = torch.ones(1000, device="fl")
    torch.manual_seed(5)
    first = torch.nn.functional.dropout(x, 0.3)
    second = torch.nn.functional.dropout(x, 0.3)
    torch.manual_seed(5)
    assert torch.equal(torch.nn.functional.dropout(x, 0.3), first)
    assert not torch.equal(first, second)
    kept = (first != 0).float().mean().item()
    assert 0.6 < kept < 0.8


def test_checkpoint_restores_random_state() -> None:
    """Activation checkpointing replays the same dropout mask in the backward pass."""
    layer = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5), torch.nn.Linear(64, 64)).to("fl")
    x = torch.randn(8, 64, device="fl")
    results = []
    for use in (False, True):
        torch.manual_seed(9)
        inputs = x.clone().requires_grad_()
        y = checkpoint(layer, inputs, use_reentrant=False) if use else layer(inputs)
        layer.zero_grad()
        y.square().sum().backward()
        results.append((y.detach(), inputs.grad, layer[0].weight.grad.clone()))
    for plain, checkpointed in zip(*results, strict=True):
        assert torch.equal(plain, checkpointed)


def test_fork_rng() -> None:
    """torch.random.fork_rng brings the state of fl devices back."""
    torch.manual_seed(2)
    with torch.random.fork_rng(devices=[0], device_type="fl"):
        inside = torch.rand(3, device="fl")
    assert torch.equal(torch.rand(3, device="fl"), inside)


def test_rng_state_functions() -> None:
    """torch.fl.get_rng_state and set_rng_state round-trip, for one device and for all."""
    states = torch.fl.get_rng_state_all()
    first = torch.randn(4, device="fl")
    torch.fl.set_rng_state_all(states)
    assert torch.equal(torch.randn(4, device="fl"), first)
    torch.fl.set_rng_state(states[0])
    assert torch.equal(torch.randn(4, device="fl"), first)


def test_default_generators_seed() -> None:
    """seed() gives a fresh seed and returns it."""
    generator = torch.fl.default_generators[0]
    value = generator.seed()
    assert generator.initial_seed() == value
    assert generator.get_offset() == 0
