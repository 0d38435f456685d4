"""Four steps of NAdam on complex weights: real and imaginary parts are separate weights."""

import torch
from torch import nn

RATE, FIRST, SECOND, EPSILON, DECAY, STEPS = 0.01, 0.9, 0.999, 1e-8, 0.004, 4


class Model(nn.Module):
    def forward(self, start, gradients):
        weight = torch.view_as_complex(start).clone().requires_grad_()
        optimizer = torch.optim.NAdam([weight], lr=RATE)
        for step in range(STEPS):
            weight.grad = torch.view_as_complex(gradients[step]).clone()
            optimizer.step()
        return torch.view_as_real(weight.detach()).clone()


def truth(start, gradients):
    weight, mean, square, product = start.clone(), torch.zeros_like(start), torch.zeros_like(start), 1.0
    for step in range(1, STEPS + 1):
        gradient = gradients[step - 1]
        now = FIRST * (1 - 0.5 * 0.96 ** (step * DECAY))
        following = FIRST * (1 - 0.5 * 0.96 ** ((step + 1) * DECAY))
        product *= now
        mean = FIRST * mean + (1 - FIRST) * gradient
        square = SECOND * square + (1 - SECOND) * gradient * gradient
        divisor = (square / (1 - SECOND**step)).sqrt() + EPSILON
        weight = weight - RATE * (1 - now) / (1 - product) * gradient / divisor
        weight = weight - RATE * following / (1 - product * following) * mean / divisor
    return weight


def get_inputs():
    return [torch.randn(16, 8, 2), torch.randn(STEPS, 16, 8, 2)]


def get_init_inputs():
    return []
