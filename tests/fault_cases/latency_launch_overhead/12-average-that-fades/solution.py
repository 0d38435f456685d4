"""Newer versions carry the state along: work that grows with the length, and not with its square."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


class ModelNew(torch.nn.Module):
    def __init__(self, rate):
        super().__init__()
        self.rate = rate

    def forward(self, x):
        if RELEASE >= (2, 4):
            state, states = torch.zeros_like(x[:, 0]), []
            for step in x.unbind(dim=1):
                state = torch.lerp(state, step, self.rate)
                states.append(state)
            return torch.stack(states, dim=1)
        steps = torch.arange(x.shape[1], device=x.device)
        age = (steps[:, None] - steps[None, :]).clamp_(min=0).to(x.dtype)
        return torch.matmul(torch.pow(1 - self.rate, age).mul_(self.rate).tril_(), x)
