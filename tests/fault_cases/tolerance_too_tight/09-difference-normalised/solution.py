"""Both softmaxes in one batch, and their difference times V in one product where the model makes two."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, lambda_):
        super().__init__()
        self.lambda_ = lambda_

    def forward(self, q, k, v):
        q, k = (torch.stack(x.chunk(2, dim=-1)) for x in (q, k))
        first, second = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * q.shape[-1] ** -0.5, dim=-1)
        out = torch.matmul(first - self.lambda_ * second, v)
        return out * torch.rsqrt(out.square().mean(dim=-1, keepdim=True))
