# SPDX-License-Identifier: Apache-2.0
"""Lets the tests here import their helpers whatever pytest's import mode is."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
