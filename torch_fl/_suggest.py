# SPDX-License-Identifier: Apache-2.0
"""Error texts that offer the nearest valid word."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def nearest(word: str, choices: Iterable[str], others: Mapping[str, str] | None = None) -> str:
    """Return the choice that ``word`` resembles most, or an empty string. ``others`` maps known wrong names."""
    import difflib

    exact = (others or {}).get(word.lower(), "")
    return exact or next(iter(difflib.get_close_matches(word[:200], list(choices), n=1, cutoff=0.6)), "")


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` or an empty string."""
    import difflib  # only errors need it

    close = difflib.get_close_matches(word, list(choices), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(repr(item) for item in close)}?" if close else ""
