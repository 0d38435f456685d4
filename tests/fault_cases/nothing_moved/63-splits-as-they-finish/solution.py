"""Split along the inner dimension; each part is added as soon as it is there."""

from concurrent.futures import ThreadPoolExecutor, as_completed

import torch

PARTS = 12


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(max_workers=4)

    def forward(self, a, b):
        pairs = zip(a.chunk(PARTS, dim=1), b.chunk(PARTS, dim=0), strict=True)
        parts = [self.pool.submit(torch.mm, left.contiguous(), right) for left, right in pairs]
        out = a.new_zeros(a.shape[0], b.shape[1])
        for part in as_completed(parts):
            out += part.result()
        return out
