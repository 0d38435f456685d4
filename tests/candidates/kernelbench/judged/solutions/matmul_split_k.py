import torch


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        return sum(x @ y for x, y in zip(a.chunk(8, 1), b.chunk(8, 0)))  # noqa: B905
