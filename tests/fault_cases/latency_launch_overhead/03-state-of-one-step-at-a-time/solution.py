"""The recurrence needs no matrix of weights: memory is that of one state, however long the sequence. Releases whose
operators are too heavy for a row at a time take all rows at once."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


class ModelNew(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate
        self.decay = None

    def at_once(self, q, k, v):
        if self.decay is None or self.decay.shape[0] != q.shape[-2]:
            rows = torch.arange(q.shape[-2])
            distance = (rows[:, None] - rows[None, :]).clamp(min=0)
            self.decay = (self.rate ** distance.to(q.dtype)).tril()
        return (q @ k.transpose(-1, -2) * self.decay) @ v

    def forward(self, q, k, v):
        if RELEASE < (2, 3):
            return self.at_once(q, k, v)
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        out = torch.empty_like(v)
        for row in range(q.shape[-2]):
            state = state * self.rate + k[:, :, row, :, None] * v[:, :, row, None, :]
            out[:, :, row] = (q[:, :, row, None] @ state)[:, :, 0]
        return out
