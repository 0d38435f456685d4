"""Images side by side in a pool of threads, in memory that is allocated once."""

from concurrent.futures import ThreadPoolExecutor

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = ThreadPoolExecutor(max_workers=4)
        self.centred = self.squares = None

    def image(self, x, out):
        mean = x.mean(dim=-1, keepdim=True)
        torch.sub(x, mean, out=self.centred)
        torch.mul(self.centred, self.centred, out=self.squares)
        deviation = self.squares.mean(dim=-1, keepdim=True).add_(1e-5).sqrt_()
        torch.div(self.centred, deviation, out=out)

    def forward(self, x):
        flat = x.flatten(2)
        if self.centred is None or self.centred.shape != flat.shape[1:]:
            self.centred, self.squares = torch.empty_like(flat[0]), torch.empty_like(flat[0])
        out = torch.empty_like(flat)
        list(self.pool.map(self.image, flat, out))
        return out.view_as(x)
