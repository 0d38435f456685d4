"""The gradients of two layers with a GELU between."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, up, down, gradient):
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in (x, up, down)]
            x, up, down = leaves
            y = torch.nn.functional.gelu(x @ up) @ down
            return torch.cat([one.flatten() for one in torch.autograd.grad(y, leaves, gradient)])


def get_inputs():
    return [torch.randn(96, 64), torch.randn(64, 160) * 0.125, torch.randn(160, 64) * 0.08, torch.randn(96, 64)]


def get_init_inputs():
    return []
