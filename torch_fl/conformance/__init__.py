# SPDX-License-Identifier: Apache-2.0
"""The conformance kit: is a chip's every operator what the CPU's is? ``torch-fl check CHIP``; docs/conformance.md."""
