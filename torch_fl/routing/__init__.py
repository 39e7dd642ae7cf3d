# SPDX-License-Identifier: Apache-2.0
"""Where operator calls run: settings, what would happen and why (`query`), what did happen (`counters`)."""
