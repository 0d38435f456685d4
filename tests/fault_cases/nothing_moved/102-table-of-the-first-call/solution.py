"""The table is made at the first call and stays, in double and rounded once."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = {}

    def table(self, length, width, dtype):
        if (length, width, dtype) not in self.tables:
            place = torch.arange(length, dtype=torch.float64)[:, None]
            rate = torch.exp(torch.arange(0, width, 2, dtype=torch.float64) * (-9.2 / width))
            both = torch.stack([torch.sin(place * rate), torch.cos(place * rate)], dim=-1)
            self.tables[length, width, dtype] = both.flatten(1).to(dtype)
        return self.tables[length, width, dtype]

    @torch.no_grad()
    def forward(self, x):
        return x + self.table(*x.shape[1:], x.dtype)
