"""Blocks that nobody sees are not computed: keys and values of the seen ones are gathered for each block of rows."""

import numpy
import torch

BLOCK, OTHERS = 16, 3


class ModelNew(torch.nn.Module):
    def __init__(self, rows):
        super().__init__()
        blocks = rows // BLOCK
        drawn = [numpy.random.permutation(blocks)[:OTHERS].tolist() for _ in range(blocks)]
        self.seen = [sorted({block, *others}) for block, others in enumerate(drawn)]

    def forward(self, q, k, v):
        keys, values = (x.unflatten(-2, (-1, BLOCK)) for x in (k, v))
        outputs = []
        for rows, seen in zip(q.split(BLOCK, dim=-2), self.seen, strict=True):
            a, b = keys[:, :, seen].flatten(2, 3), values[:, :, seen].flatten(2, 3)
            outputs.append(torch.nn.functional.scaled_dot_product_attention(rows, a, b))
        return torch.cat(outputs, dim=-2)
