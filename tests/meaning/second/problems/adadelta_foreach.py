"""Steps of Adadelta on complex weights by its joint operators: parts are separate weights."""

import torch
from torch import nn

RATE, KEEP, EPSILON, STEPS = 1.0, 0.9, 1e-2, 6


class Model(nn.Module):
    def forward(self, start, gradients):
        weight = torch.view_as_complex(start).clone().requires_grad_()
        optimizer = torch.optim.Adadelta([weight], lr=RATE, rho=KEEP, eps=EPSILON, foreach=True)
        for step in range(STEPS):
            weight.grad = torch.view_as_complex(gradients[step]).clone()
            optimizer.step()
        return torch.view_as_real(weight.detach()).clone()


def truth(start, gradients):
    weight, square, moved = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    for step in range(STEPS):
        square = KEEP * square + (1 - KEEP) * gradients[step] ** 2
        change = (moved + EPSILON).sqrt() / (square + EPSILON).sqrt() * gradients[step]
        moved = KEEP * moved + (1 - KEEP) * change**2
        weight = weight - RATE * change
    return weight


def get_inputs():
    return [torch.randn(16, 8, 2), torch.randn(STEPS, 16, 8, 2)]


def get_init_inputs():
    return []
