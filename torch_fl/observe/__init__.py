# SPDX-License-Identifier: Apache-2.0
"""What the core saw: records of calls, device events, and what is made of them. See docs/design/observe.md."""
