"""The same with the turn folded into one complex product, and PyTorch's attention."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, heads, head_dim):
        super().__init__()
        spread = torch.distributions.VonMises(torch.zeros(head_dim // 2), torch.ones(head_dim // 2))
        phases = spread.sample((heads, 1))
        self.turn = torch.polar(torch.ones_like(phases), phases)

    def forward(self, q, k, v):
        pairs = torch.view_as_complex(k.unflatten(-1, (-1, 2)).contiguous())
        turned = torch.view_as_real(pairs * self.turn).flatten(-2)
        return torch.nn.functional.scaled_dot_product_attention(q, turned, v)
