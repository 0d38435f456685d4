"""The newest versions run the recurrence as it is written, in as many steps as there are rows and without a matrix."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


class ModelNew(torch.nn.Module):
    def __init__(self, decay):
        super().__init__()
        self.decay = decay

    def forward(self, x):
        if RELEASE < (2, 3):
            step = torch.arange(len(x))
            weights = self.decay ** (step[:, None] - step[None, :]).clamp_(min=0).to(x.dtype)
            return weights.tril_() @ x
        out = x.clone()
        for step in range(1, len(x)):
            out[step].add_(out[step - 1], alpha=self.decay)
        return out
