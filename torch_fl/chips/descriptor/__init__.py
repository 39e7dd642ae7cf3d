# SPDX-License-Identifier: Apache-2.0
"""Descriptors: the YAML text that makes a chip of a library (docs/descriptors.md)."""

from torch_fl.chips.descriptor.errors import DescriptorError, Problem
from torch_fl.chips.descriptor.loader import load
from torch_fl.chips.descriptor.models import Descriptor
from torch_fl.chips.descriptor.validation import validate

__all__ = ["Descriptor", "DescriptorError", "Problem", "load", "validate"]
