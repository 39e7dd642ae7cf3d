# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import their helpers whatever pytest's import mode is."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from nn_host import Host


@pytest.fixture(scope="session")
def host() -> Host:
    return Host()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
