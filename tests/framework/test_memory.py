# SPDX-License-Identifier: Apache-2.0
"""Memory: statistics, limits, what happens when there is none left, storages."""

from __future__ import annotations

import gc

import pytest
import torch

from tests.framework.helpers import needs_two_devices, run_child

MIB = 2**20


def test_allocated_and_peak() -> None:
    """Allocated bytes rise with a tensor and fall when it goes; the peak remembers."""
    gc.collect()
    torch.fl.reset_peak_memory_stats()
    before = torch.fl.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="fl")
    assert torch.fl.memory_allocated() - before == 8 * MIB
    assert torch.fl.memory_reserved() >= torch.fl.memory_allocated()
    del x
    assert torch.fl.memory_allocated() == before
    assert torch.fl.max_memory_allocated() >= before + 8 * MIB
    torch.fl.reset_peak_memory_stats()
    assert torch.fl.max_memory_allocated() == before


def test_accelerator_api_agrees() -> None:
    """torch.accelerator reports what torch.fl reports."""
    x = torch.empty(MIB, device="fl")
    assert torch.accelerator.memory_allocated() == torch.fl.memory_allocated() >= x.nbytes
    stats = torch.accelerator.memory_stats()
    assert stats["allocated_bytes.all.current"] == torch.fl.memory_allocated()
    assert stats["allocation.all.current"] >= 1
    assert stats["segment.all.current"] >= 1


@needs_two_devices
def test_devices_count_separately() -> None:
    """Memory of one device does not show in the statistics of the other."""
    before = torch.fl.memory_allocated(0), torch.fl.memory_allocated(1)
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="fl:1")
    assert torch.fl.memory_allocated(0) == before[0]
    assert torch.fl.memory_allocated(1) == before[1] + x.nbytes


def test_empty_cache_gives_back() -> None:
    """empty_cache returns unused segments to the chip."""
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="fl")
    del x
    held = torch.fl.memory_reserved()
    free_before, total = torch.fl.mem_get_info()
    torch.fl.empty_cache()
    free_after, _ = torch.fl.mem_get_info()
    assert torch.fl.memory_reserved() <= held - 64 * MIB
    assert free_after >= free_before + 64 * MIB
    assert total >= free_after


def test_too_large_request() -> None:
    """A request beyond the device is torch.OutOfMemoryError with the figures, and the device works on."""
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate .*fl:0"):
        torch.empty(2**48, dtype=torch.uint8, device="fl")
    assert torch.ones(3, device="fl").sum().item() == 3


def test_out_of_memory_after_retry() -> None:
    """A request that fits once the cache is emptied succeeds; one that does not fit raises and leaves all usable."""
    run_child(
        """
        import torch
        mib = 2**20
        # 40 cached blocks of 1.5 MiB do not leave room for 100 MiB until they are given back.
        blocks = [torch.empty(3 * mib // 2, dtype=torch.uint8, device="fl") for _ in range(40)]
        del blocks
        big = torch.empty(100 * mib, dtype=torch.uint8, device="fl")
        stats = torch.fl.memory_stats()
        assert stats["num_alloc_retries"] >= 1, stats
        try:
            torch.empty(100 * mib, dtype=torch.uint8, device="fl")
        except torch.OutOfMemoryError as error:
            assert "100.00 MiB" in str(error) and "128.00 MiB" in str(error), error
        else:
            raise AssertionError("no out-of-memory error")
        assert torch.fl.memory_stats()["num_ooms"] >= 1
        big.fill_(3)
        assert int(big[-1]) == 3
        del big
        assert torch.empty(100 * mib, dtype=torch.uint8, device="fl").numel() == 100 * mib
        """,
        SIMCHIP_MEMORY_MB="128",
    )


def test_memory_fraction() -> None:
    """set_per_process_memory_fraction caps allocation and 1.0 lifts the cap."""
    run_child(
        """
        import torch
        torch.fl.set_per_process_memory_fraction(0.25)
        torch.empty(2**20, device="fl")
        try:
            torch.empty(100 * 2**20, dtype=torch.uint8, device="fl")
        except torch.OutOfMemoryError as error:
            assert "memory_fraction" in str(error), error
        else:
            raise AssertionError("no out-of-memory error")
        torch.fl.set_per_process_memory_fraction(1.0)
        torch.empty(100 * 2**20, dtype=torch.uint8, device="fl")
        """,
        SIMCHIP_MEMORY_MB="256",
    )


def test_empty_tensor_has_no_memory() -> None:
    """A tensor without elements has a device and no memory."""
    before = torch.fl.memory_stats()["allocation.all.allocated"]
    x = torch.empty(0, 5, device="fl")
    assert x.device.type == "fl"
    assert x.data_ptr() == 0
    assert torch.fl.memory_stats()["allocation.all.allocated"] == before


def test_storage_resize_keeps_contents() -> None:
    """Growing and shrinking a storage keeps the bytes that both sizes have."""
    x = torch.arange(4.0, device="fl")
    storage = x.untyped_storage()
    storage.resize_(64)
    assert x.tolist() == [0, 1, 2, 3]
    assert torch.empty(0, device="fl").set_(storage, 0, (16,))[:4].tolist() == [0, 1, 2, 3]
    storage.resize_(8)
    assert torch.empty(0, device="fl").set_(storage, 0, (2,)).tolist() == [0, 1]
    storage.resize_(0)
    assert storage.nbytes() == 0


def test_tensor_resize_keeps_contents() -> None:
    """resize_ to something larger keeps the elements in front."""
    x = torch.arange(6.0, device="fl")
    x.resize_(4, 4)
    assert x.flatten()[:6].tolist() == [0, 1, 2, 3, 4, 5]


def test_storage_methods() -> None:
    """Storages clone, copy between devices and say where they are."""
    storage = torch.arange(4, dtype=torch.uint8, device="fl").untyped_storage()
    assert storage.device.type == "fl"
    assert storage.cpu().tolist() == [0, 1, 2, 3]
    assert storage.clone().cpu().tolist() == [0, 1, 2, 3]
    assert torch.UntypedStorage(8, device="fl").nbytes() == 8


def test_memory_profile_reports_device() -> None:
    """profile_memory sees allocations of the device."""
    with torch.profiler.profile(profile_memory=True) as profile:
        x = torch.empty(MIB, dtype=torch.uint8, device="fl")
        x.fill_(1)
    sizes = [event.device_memory_usage for event in profile.events()]
    assert max(sizes, default=0) >= MIB
