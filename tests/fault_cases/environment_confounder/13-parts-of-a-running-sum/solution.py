"""Time is cut into a part for each thread, and each part is summed up by itself."""

from itertools import pairwise

import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x):
        parts = [torch.cumsum(part, dim=0) for part in x.chunk(torch.get_num_threads())]
        for before, part in pairwise(parts):
            part += before[0]
        return torch.cat(parts)
