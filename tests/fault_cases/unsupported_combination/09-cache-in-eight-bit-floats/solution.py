"""The cache has rows outermost, grows by a block of them at a time, and is widened where it is multiplied."""

import torch
import torch.nn.functional as F


class Cache:
    def __init__(self, kind=torch.float8_e4m3fn):
        self.kind, self.held = kind, None

    def append(self, rows):
        rows = rows.movedim(-2, 0).to(self.kind)
        self.held = rows if self.held is None else torch.cat([self.held, rows])

    def read(self, kind):
        return self.held.to(kind).movedim(0, -2)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        keys, values = Cache(), Cache()
        for block in range(0, k.shape[-2], 64):
            keys.append(k[..., block : block + 64, :])
            values.append(v[..., block : block + 64, :])
        return F.scaled_dot_product_attention(q, keys.read(q.dtype), values.read(q.dtype))
