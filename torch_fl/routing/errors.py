# SPDX-License-Identifier: Apache-2.0
"""Exceptions of routing and settings."""


class UnsupportedOpError(NotImplementedError):
    """No route is left for an operator call. Names operator, device, dtypes, shapes, the reason, and a way out."""


class ConfigError(ValueError):
    """A setting that does not exist, or a value that it cannot take."""
