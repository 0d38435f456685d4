"""Nine steps of RAdam on complex weights."""

import torch
from torch import nn

RATE, STEPS = 0.01, 9


class Model(nn.Module):
    def forward(self, start, gradients):
        weight = torch.view_as_complex(start).clone().requires_grad_()
        optimizer = torch.optim.RAdam([weight], lr=RATE, foreach=False)
        for step in range(STEPS):
            weight.grad = torch.view_as_complex(gradients[step]).clone()
            optimizer.step()
        return torch.view_as_real(weight.detach()).clone()


def get_inputs():
    return [torch.randn(16, 8, 2), torch.randn(STEPS, 16, 8, 2)]


def get_init_inputs():
    return []
