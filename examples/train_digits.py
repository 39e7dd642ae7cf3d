# SPDX-License-Identifier: Apache-2.0
"""Train ResNet-18 on real handwritten digits, on the CPU and on ``fl`` devices, from one seed, and compare.

Nothing below knows a chip. The first device trains as long as the CPU, others for fewer epochs. The network is the
standard ResNet-18 with its 7x7 stem and max pooling, with one input channel and ten classes; the images are
scikit-learn's 1,797 digits of 8x8 pixels, resized to 32x32.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from dataclasses import dataclass, field

import torch
from resnet import ResNet18
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from sklearn.datasets import load_digits
from torch import Tensor
from torch.nn import functional as F

import torch_fl

TEST_IMAGES = 360
REQUIRED_ACCURACY = 0.97
FEWER_EPOCHS_ACCURACY = 0.9
FIRST_LOSS_TOLERANCE = 1e-4
SEED = 0

console = Console(width=100 if not sys.stdout.isatty() else None)


@dataclass
class Data:
    """Normalised images and their labels."""

    train_images: Tensor
    train_labels: Tensor
    test_images: Tensor
    test_labels: Tensor

    def to(self, device: torch.device) -> Data:
        """Return the same data on a device."""
        return Data(*(tensor.to(device) for tensor in vars(self).values()))


@dataclass
class Run:
    """What one device did."""

    device: torch.device
    name: str
    epochs: int
    losses: list[float] = field(default_factory=list)  # of every step
    accuracies: list[float] = field(default_factory=list)  # on the test images, after every epoch
    step_seconds: list[float] = field(default_factory=list)
    calls: torch_fl.Counters = field(default_factory=torch_fl.Counters)  # of training
    timed: torch_fl.Counters = field(default_factory=torch_fl.Counters)  # of a few steps afterwards, each call timed

    @property
    def native_share(self) -> float:
        """The share of operator calls that did not leave the chip."""
        return 1 - self.calls.share("host")

    @property
    def median_step(self) -> float:
        """The typical duration of a step, in seconds."""
        return sorted(self.step_seconds)[len(self.step_seconds) // 2]


def load_data() -> Data:
    """Load, resize, split and normalise the digits; the statistics are those of the training images."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1)
    images = F.interpolate(images, size=(32, 32), mode="bilinear", align_corners=False)
    labels = torch.tensor(digits.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    test, train = order[:TEST_IMAGES], order[TEST_IMAGES:]
    mean, std = images[train].mean(), images[train].std()
    images = (images - mean) / std
    return Data(images[train], labels[train], images[test], labels[test])


class Trainer:
    """Trains one network on one device."""

    def __init__(self, run: Run, data: Data, batch: int, steps_per_epoch: int) -> None:
        torch.manual_seed(SEED)
        self.run = run
        self.data = data.to(run.device)
        self.batch, self.steps = batch, steps_per_epoch
        self.network = ResNet18(classes=10, channels=1).to(run.device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=run.epochs * self.steps)
        self.shuffle = torch.Generator().manual_seed(SEED)

    def train(self, progress: Progress) -> Run:
        """Train all epochs and return what happened."""
        bar = progress.add_task(str(self.run.device), total=self.run.epochs * self.steps, note="")
        on_fl = self.run.device.type == "fl"
        torch_fl.reset_counters()
        for epoch in range(self.run.epochs):
            order = torch.randperm(len(self.data.train_labels), generator=self.shuffle).to(self.run.device)
            for chosen in order.split(self.batch)[: self.steps]:
                self._timed_step(chosen)
                note = f"epoch {epoch + 1}/{self.run.epochs} loss {self.run.losses[-1]:.4f}"
                progress.update(bar, advance=1, note=note)
            self.run.accuracies.append(self.accuracy())
        if on_fl:
            self.run.calls = torch_fl.counters()
            self.run.timed = self._profile(order[: self.batch])
        return self.run

    def _timed_step(self, chosen: Tensor) -> None:
        start = time.perf_counter()
        loss = self._step(chosen)
        self.schedule.step()
        self.run.losses.append(loss.item())  # waits for the device
        self.run.step_seconds.append(time.perf_counter() - start)

    def _step(self, chosen: Tensor) -> Tensor:
        self.network.train()
        loss = F.cross_entropy(self.network(self.data.train_images[chosen]), self.data.train_labels[chosen])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def accuracy(self) -> float:
        """Return the share of test images that the network gets right."""
        self.network.eval()
        with torch.no_grad():
            guesses = torch.cat([self.network(part).argmax(1) for part in self.data.test_images.split(120)])
        return (guesses == self.data.test_labels).float().mean().item()

    def _profile(self, chosen: Tensor, steps: int = 3) -> torch_fl.Counters:
        """Run a few more steps, waiting for every call, so that time can be told apart by route."""
        torch_fl.reset_counters()
        with torch_fl.timing():
            for _ in range(steps):
                self._step(chosen).item()
        return torch_fl.counters()


def show_training(runs: list[Run]) -> None:
    """Print loss and accuracy side by side."""
    table = Table("epoch", *(str(run.device) for run in runs), title="Loss and test accuracy, side by side")
    steps = len(runs[0].losses) // len(runs[0].accuracies)
    table.add_row("first step", *(f"{run.losses[0]:.6f}" for run in runs))
    for epoch in range(max(run.epochs for run in runs)):
        part = slice(epoch * steps, (epoch + 1) * steps)
        cells = (
            f"{sum(run.losses[part]) / steps:.4f}  {run.accuracies[epoch]:7.2%}" if epoch < run.epochs else ""
            for run in runs
        )
        table.add_row(str(epoch + 1), *cells)
    console.print(table)


def show_devices(runs: list[Run]) -> None:
    """Print what each device took and did."""
    table = Table("device", "", "steps", "seconds", "median step", "of the CPU's", "accuracy", "on chip")
    for run in runs:
        share = f"{run.native_share:.1%}" if run.device.type == "fl" else ""
        table.add_row(
            str(run.device),
            run.name,
            str(len(run.losses)),
            f"{sum(run.step_seconds):.1f}",
            f"{run.median_step * 1e3:.0f} ms",
            f"{run.median_step / runs[0].median_step:.2f}x",
            f"{run.accuracies[-1]:.2%}",
            share,
        )
    console.print(table)


def show_routes(run: Run) -> None:
    """Print what ran where, and what left the chip and why."""
    title = f"Routes of operator calls on {run.device}"
    table = Table("route", "calls", "share of calls", "share of time", title=title)
    calls, times = run.calls.by("route"), run.timed.by("route")
    all_calls, all_ns = run.calls.total().calls, run.timed.total().ns
    for route, total in calls.items():
        ns = times[route].ns if route in times else 0
        table.add_row(route, f"{total.calls:,}", f"{total.calls / all_calls:.2%}", f"{ns / max(all_ns, 1):.2%}")
    console.print(table)
    left = run.calls.where(route="host")
    if not left:
        console.print(f"Nothing left {run.device}.")
        return
    table = Table("left the chip", "calls", "MB moved", "why", title=f"Host fallbacks of {run.device}")
    for row in sorted(left, key=lambda row: -row.calls)[:12]:
        table.add_row(row.name, f"{row.calls:,}", f"{row.bytes / 1e6:.2f}", row.reason)
    console.print(table)


def verdict(cpu: Run, run: Run, required_accuracy: float) -> bool:
    """Print whether a device did what it should, and return it."""
    difference = abs(cpu.losses[0] - run.losses[0])
    accuracy = run.accuracies[-1]
    checks = [
        (
            difference <= FIRST_LOSS_TOLERANCE,
            f"{run.device}: first losses differ by {difference:.1e} (at most {FIRST_LOSS_TOLERANCE:g})",
        ),
        (
            accuracy >= required_accuracy,
            f"{run.device}: test accuracy is {accuracy:.2%} (at least {required_accuracy:.0%})",
        ),
    ]
    for passed, text in checks:
        console.print(f"[{'green' if passed else 'red'}]{'ok  ' if passed else 'FAIL'}[/] {text}")
    return all(passed for passed, _ in checks)


def choose_devices(wanted: list[str]) -> list[torch_fl.DeviceRecord]:
    """Return the first device with each of these pieces in its name, and tell which there is none of."""
    chosen = []
    for piece in wanted:
        found = [r for r in torch_fl.list_devices() if piece.lower() in f"{r.chip} {r.name}".lower()]
        chosen += found[:1]
        if not found:
            console.print(f"skipped: no device has '{piece}' in its name. What was found:", highlight=False)
            console.print(*map(str, torch_fl.list_plugins()), sep="\n", highlight=False)
    return chosen


def main() -> int:
    """Train on all devices and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--fewer-epochs", type=int, default=2, help="on all fl devices but the first")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=22, help="steps in an epoch, at most")
    parser.add_argument("--required-accuracy", type=float, default=REQUIRED_ACCURACY)
    parser.add_argument("--on", action="append", metavar="NAME", help="the first device with this in its name")
    options = parser.parse_args()
    if not torch.fl.is_available():  # type: ignore[attr-defined]
        console.print("No fl device. What was found:", *map(str, torch_fl.list_plugins()), sep="\n  ")
        return 1
    records = choose_devices(options.on or [""])
    console.print(*map(str, records), sep="\n")
    started = time.perf_counter()
    data = load_data()
    steps = min(options.steps, len(data.train_labels) // options.batch)
    runs = [Run(torch.device("cpu"), "stock PyTorch", options.epochs)]
    for record in records:
        epochs = options.epochs if len(runs) == 1 else min(options.fewer_epochs, options.epochs)
        short_name = re.sub(r".* \((.+)\)$", r"\1", record.name)  # a name's end tells whose device it is
        runs.append(Run(torch.device(record.device), short_name, epochs))
    columns = (TextColumn("{task.description:>5}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=2) as progress:
        for run in runs:
            Trainer(run, data, options.batch, steps).train(progress)
    show_training(runs)
    show_devices(runs)
    for run in runs[1:]:
        show_routes(run)
    if any(run.epochs < options.epochs for run in runs):
        console.print(f"Devices after the first trained for {options.fewer_epochs} of {options.epochs} epochs only.")
    console.print(f"everything took {time.perf_counter() - started:.0f} s")
    required = {options.epochs: options.required_accuracy}
    good = [verdict(runs[0], run, required.get(run.epochs, FEWER_EPOCHS_ACCURACY)) for run in runs[1:]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
