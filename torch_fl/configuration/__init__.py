# SPDX-License-Identifier: Apache-2.0
"""Settings: what there is, where values come from, and how they reach the core."""
