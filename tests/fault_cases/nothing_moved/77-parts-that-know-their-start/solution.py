"""Time is cut into a part for each thread; what a part ends with is where the next begins."""

from itertools import pairwise

import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        parts = [torch.cumsum(part, dim=0) for part in x.chunk(torch.get_num_threads())]
        for before, part in pairwise(parts):
            part += before[-1]
        return torch.cat(parts)
