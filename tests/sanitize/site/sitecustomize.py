# SPDX-License-Identifier: Apache-2.0
"""On PYTHONPATH only: lets a staged torch_fl be imported where an editable install would step in front of it."""

import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if not type(finder).__module__.startswith("_editable_")]
