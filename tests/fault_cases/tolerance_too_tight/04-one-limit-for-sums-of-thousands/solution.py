"""In chunks: within one as it is written, and from all before through a state of 64 x 64, which decays as a whole."""

import torch

CHUNK = 64


class ModelNew(torch.nn.Module):
    def __init__(self, heads):
        super().__init__()
        rate = (1 - 2.0 ** -(5 + torch.arange(heads, dtype=torch.float64)))[:, None, None]
        rows = torch.arange(CHUNK, dtype=torch.float64)
        within = (rate ** (rows[:, None] - rows[None, :]).clamp(min=0)).tril()
        self.within, self.before = within.float(), (rate ** (rows[:, None] + 1)).float()
        self.behind, self.whole = (rate ** (CHUNK - 1 - rows[:, None])).float(), (rate**CHUNK).float()

    def forward(self, q, k, v):
        state = q.new_zeros(*q.shape[:2], q.shape[-1], v.shape[-1])
        outputs = []
        for a, b, c in zip(*(x.split(CHUNK, dim=-2) for x in (q, k, v)), strict=True):
            outputs.append((a @ b.transpose(-1, -2) * self.within) @ c + (a * self.before) @ state)
            state = state * self.whole + (b * self.behind).transpose(-1, -2) @ c
        return torch.cat(outputs, dim=-2)
