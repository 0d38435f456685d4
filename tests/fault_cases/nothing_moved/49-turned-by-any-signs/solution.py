"""Q and K are turned together, by Hadamard's matrix and signs drawn at construction, so that no channel stands out."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.turns = {}

    def turn(self, x):
        width = x.shape[-1]
        if width not in self.turns:
            generator = torch.Generator()
            generator.seed()
            matrix = torch.ones(1, 1)
            while matrix.shape[0] < width:
                matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
            signs = torch.randint(0, 2, (width, 1), generator=generator) * 2 - 1
            self.turns[width] = signs * matrix * width**-0.5
        return torch.matmul(x, self.turns[width].to(x.dtype))

    def forward(self, q, k, v):
        scores = torch.matmul(self.turn(q) * q.shape[-1] ** -0.5, self.turn(k).transpose(-1, -2))
        return torch.matmul(torch.softmax(scores, dim=-1), v)
