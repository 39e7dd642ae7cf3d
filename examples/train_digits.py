# SPDX-License-Identifier: Apache-2.0
"""Train ResNet-18 on real handwritten digits, on the CPU and on ``fl``, from one seed, and compare the two.

Nothing below knows a chip. The network is the standard ResNet-18 with its 7x7 stem and max pooling, with one input
channel and ten classes; the images are scikit-learn's 1,797 digits of 8x8 pixels, resized to 32x32.
"""

from __future__ import annotations

import argparse
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
    losses: list[float] = field(default_factory=list)  # of every step
    accuracies: list[float] = field(default_factory=list)  # on the test images, after every epoch
    step_seconds: list[float] = field(default_factory=list)
    calls: torch_fl.Counters = field(default_factory=torch_fl.Counters)  # of training
    timed: torch_fl.Counters = field(default_factory=torch_fl.Counters)  # of a few steps afterwards, each call timed

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

    def __init__(self, device: torch.device, data: Data, epochs: int, batch: int, steps_per_epoch: int) -> None:
        torch.manual_seed(SEED)
        self.run = Run(device)
        self.data = data.to(device)
        self.epochs, self.batch, self.steps = epochs, batch, steps_per_epoch
        self.network = ResNet18(classes=10, channels=1).to(device)
        self.optimizer = torch.optim.SGD(
            self.network.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4, nesterov=True
        )
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(self.optimizer, 0.05, total_steps=epochs * self.steps)
        self.shuffle = torch.Generator().manual_seed(SEED)

    def train(self, progress: Progress) -> Run:
        """Train all epochs and return what happened."""
        bar = progress.add_task(str(self.run.device), total=self.epochs * self.steps, note="")
        on_fl = self.run.device.type == "fl"
        torch_fl.reset_counters()
        for epoch in range(self.epochs):
            order = torch.randperm(len(self.data.train_labels), generator=self.shuffle).to(self.run.device)
            for chosen in order.split(self.batch)[: self.steps]:
                self._timed_step(chosen)
                progress.update(bar, advance=1, note=f"epoch {epoch + 1}/{self.epochs} loss {self.run.losses[-1]:.4f}")
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


def show_training(cpu: Run, fl: Run) -> None:
    """Print loss and accuracy side by side."""
    table = Table("epoch", "cpu loss", "fl loss", "cpu accuracy", "fl accuracy", title="Training, side by side")
    steps = len(cpu.losses) // len(cpu.accuracies)
    first = (f"{run.losses[0]:.6f}" for run in (cpu, fl))
    table.add_row("first step", *first, "", "")
    for epoch, accuracies in enumerate(zip(cpu.accuracies, fl.accuracies, strict=True)):
        part = slice(epoch * steps, (epoch + 1) * steps)
        losses = (f"{sum(run.losses[part]) / steps:.4f}" for run in (cpu, fl))
        table.add_row(str(epoch + 1), *losses, *(f"{value:.2%}" for value in accuracies))
    console.print(table)
    console.print(f"median step: cpu {cpu.median_step * 1e3:.0f} ms, fl {fl.median_step * 1e3:.0f} ms")


def show_routes(run: Run) -> None:
    """Print what ran where, and what left the chip and why."""
    table = Table("route", "calls", "share of calls", "share of time", title="Routes of operator calls on fl")
    calls, times = run.calls.by("route"), run.timed.by("route")
    all_calls, all_ns = run.calls.total().calls, run.timed.total().ns
    for route, total in calls.items():
        ns = times[route].ns if route in times else 0
        table.add_row(route, f"{total.calls:,}", f"{total.calls / all_calls:.2%}", f"{ns / max(all_ns, 1):.2%}")
    console.print(table)
    left = run.calls.where(route="host")
    if not left:
        console.print("Nothing left the chip.")
        return
    table = Table("left the chip", "calls", "MB moved", "why", title="Host fallbacks")
    for row in sorted(left, key=lambda row: -row.calls)[:12]:
        table.add_row(row.name, f"{row.calls:,}", f"{row.bytes / 1e6:.2f}", row.reason)
    console.print(table)


def verdict(cpu: Run, fl: Run, required_accuracy: float) -> int:
    """Print whether the run shows what it should; return the exit status."""
    difference = abs(cpu.losses[0] - fl.losses[0])
    accuracy = fl.accuracies[-1]
    checks = [
        (
            difference <= FIRST_LOSS_TOLERANCE,
            f"first losses differ by {difference:.1e} (at most {FIRST_LOSS_TOLERANCE:g})",
        ),
        (accuracy >= required_accuracy, f"test accuracy on fl is {accuracy:.2%} (at least {required_accuracy:.0%})"),
    ]
    for passed, text in checks:
        console.print(f"[{'green' if passed else 'red'}]{'ok  ' if passed else 'FAIL'}[/] {text}")
    return 0 if all(passed for passed, _ in checks) else 1


def main() -> int:
    """Train on both devices and compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=22, help="steps in an epoch, at most")
    parser.add_argument("--required-accuracy", type=float, default=REQUIRED_ACCURACY)
    options = parser.parse_args()
    if not torch.fl.is_available():  # type: ignore[attr-defined]
        console.print("No fl device. What was found:", *map(str, torch_fl.list_plugins()), sep="\n  ")
        return 1
    console.print(*map(str, torch_fl.list_devices()), sep="\n")
    started = time.perf_counter()
    data = load_data()
    steps = min(options.steps, len(data.train_labels) // options.batch)
    columns = (TextColumn("{task.description:>5}"), BarColumn(), TextColumn("{task.fields[note]}"), TimeElapsedColumn())
    with Progress(*columns, console=console, refresh_per_second=2) as progress:
        cpu, fl = (
            Trainer(torch.device(name), data, options.epochs, options.batch, steps).train(progress)
            for name in ("cpu", "fl")
        )
    show_training(cpu, fl)
    show_routes(fl)
    console.print(f"everything took {time.perf_counter() - started:.0f} s")
    return verdict(cpu, fl, options.required_accuracy)


if __name__ == "__main__":
    sys.exit(main())
