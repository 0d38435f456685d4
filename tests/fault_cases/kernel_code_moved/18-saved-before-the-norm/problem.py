"""The gradients of a root mean square norm with a weight."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, weight, gradient):
        with torch.enable_grad():
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            y = x * torch.rsqrt((x * x).mean(dim=-1, keepdim=True) + 1e-5) * weight
            gradients = torch.autograd.grad(y, [x, weight], gradient)
            return torch.cat([one.flatten() for one in gradients])


def get_inputs():
    return [torch.randn(120, 96) * 2, torch.rand(96) + 0.5, torch.randn(120, 96)]


def get_init_inputs():
    return []
