"""Where kernels are tried, and on how many tokens."""

import torch

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
MANY = 9000 if DEVICE == "cuda" else 600
"""Tokens of which a program has several tiles; in the interpreter with ``_few_programs``."""
