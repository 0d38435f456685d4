"""Horner's rule, written out with its coefficients and compiled once."""

import numpy as np
import torch

COEFFICIENTS = np.array([0.9, -0.45, 0.3, -0.2, 0.15, -0.1, 0.05, -0.02])


def compiled(coefficients):
    body = repr(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        body = f"({body}) * x + {coefficient!r}"
    return eval(f"lambda x: {body}", {"torch": torch})


polynomial = compiled(COEFFICIENTS)


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        return polynomial(x)
