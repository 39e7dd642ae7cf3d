# SPDX-License-Identifier: Apache-2.0
"""Transformers of well-known shapes, with random weights: what the benchmarks of whole models run."""

from torch_fl.observe.baseline.models import Transformer, bert_base, gpt2_small

__all__ = ["Transformer", "bert_base", "gpt2_small"]
