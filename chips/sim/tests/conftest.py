# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import their helpers whatever pytest's import mode is."""

import os
import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from nn_host import Host

# The replay of all of OpInfo against the bare plugin takes long, and tests/ops runs the same samples through the whole
# stack: by request only.
collect_ignore = [] if os.environ.get("FL_SIM_REPLAY") else ["test_replay.py"]


@pytest.fixture(scope="session")
def host() -> Host:
    return Host()


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
