"""The gradient of rows whose pairs of channels are turned by phases, in front of a tanh."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, phase, gradient):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            left, right = x.unflatten(-1, (-1, 2)).unbind(-1)
            sine, cosine = phase.sin(), phase.cos()
            turned = torch.stack([left * cosine - right * sine, left * sine + right * cosine], dim=-1).flatten(-2)
            return torch.autograd.grad(torch.tanh(turned), x, gradient)[0]


def get_inputs():
    return [torch.randn(4, 120, 64), torch.rand(120, 32) * 6, torch.randn(4, 120, 64)]


def get_init_inputs():
    return []
