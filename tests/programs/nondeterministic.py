"""Draws from the operating system's entropy: it does not repeat in either version, so no cause may be named."""

import os

import torch

torch.manual_seed(int.from_bytes(os.urandom(4), "little"))
x = torch.randn(8, 8)
print((x @ x).sum().item())
