"""Nine steps of RAdam on complex weights by its joint operators: parts are separate weights."""

import torch
from torch import nn

RATE, FIRST, SECOND, EPSILON, STEPS = 0.01, 0.9, 0.999, 1e-8, 9


class Model(nn.Module):
    def forward(self, start, gradients):
        weight = torch.view_as_complex(start).clone().requires_grad_()
        optimizer = torch.optim.RAdam([weight], lr=RATE, foreach=True)
        for step in range(STEPS):
            weight.grad = torch.view_as_complex(gradients[step]).clone()
            optimizer.step()
        return torch.view_as_real(weight.detach()).clone()


def truth(start, gradients):
    weight, mean, square = start.clone(), torch.zeros_like(start), torch.zeros_like(start)
    longest = 2 / (1 - SECOND) - 1
    for step in range(1, STEPS + 1):
        gradient = gradients[step - 1]
        mean = FIRST * mean + (1 - FIRST) * gradient
        square = SECOND * square + (1 - SECOND) * gradient * gradient
        unbiased = mean / (1 - FIRST**step)
        length = longest - 2 * step * SECOND**step / (1 - SECOND**step)
        if length <= 5:
            weight = weight - RATE * unbiased
            continue
        rectified = (length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length)
        divisor = (square.sqrt() + EPSILON) / (1 - SECOND**step) ** 0.5
        weight = weight - RATE * unbiased * rectified**0.5 / divisor
    return weight


def get_inputs():
    return [torch.randn(16, 8, 2), torch.randn(STEPS, 16, 8, 2)]


def get_init_inputs():
    return []
