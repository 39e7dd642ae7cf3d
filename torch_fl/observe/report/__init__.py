# SPDX-License-Identifier: Apache-2.0
"""``torch-fl report``: the data of a run (`data`), what a kernel would gain (`gain`), and the page (`page`)."""
