"""How a readout of attention's clipped outputs changes with the queries. The gradient goes straight through the clip,
so that queries whose outputs are clipped still learn."""

import torch


class Model(torch.nn.Module):
    def forward(self, q, k, v, bias):
        with torch.enable_grad():
            q = q.detach().clone().requires_grad_()
            out = torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5 + bias, dim=-1) @ v
            out = out + (out.clamp(-0.5, 0.5) - out).detach()
            return torch.autograd.grad(out.square().sum() / 2, q)[0]


def get_inputs():
    return [*(torch.randn(2, 3, 80, 32) for _ in range(3)), 2 * torch.randn(80, 80)]


def get_init_inputs():
    return []
