"""All heads in one product. Newer versions get by with a view that repeats nothing until the product needs it."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def for_each(x, heads):
    if RELEASE >= (2, 4):
        shared = x[:, None].expand(-1, heads // x.shape[1], -1, -1, -1)
        return shared.reshape(x.shape[0], heads, *x.shape[2:])
    return x.repeat_interleave(heads // x.shape[1], dim=1)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        heads = q.shape[1]
        scores = torch.matmul(q * q.shape[-1] ** -0.5, for_each(k, heads).transpose(-1, -2))
        return torch.matmul(torch.softmax(scores, dim=-1), for_each(v, heads))
