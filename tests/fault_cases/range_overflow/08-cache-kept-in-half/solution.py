"""Keys and values come from a cache, which has them in fp16: as small as bf16, and more precise."""

import torch


class ModelNew(torch.nn.Module):
    def store(self, x):
        return x.to(torch.float16).contiguous()

    def forward(self, q, k, v):
        keys, values = self.store(k), self.store(v)
        scores = torch.matmul(q.float(), keys.float().transpose(-1, -2)) * q.shape[-1] ** -0.5
        return torch.matmul(torch.softmax(scores, dim=-1), values.float()).to(q.dtype)
