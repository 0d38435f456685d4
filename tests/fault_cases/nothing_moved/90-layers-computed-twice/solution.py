"""What lies between the layers is not kept for the way back: it is computed again."""

import torch
from torch.utils.checkpoint import checkpoint


def layers(x, up, down):
    return torch.nn.functional.gelu(x @ up) @ down


class ModelNew(torch.nn.Module):
    def forward(self, x, up, down, gradient):
        with torch.enable_grad():
            leaves = [one.detach().requires_grad_() for one in (x, up, down)]
            y = checkpoint(layers, *leaves, use_reentrant=False)
            return torch.cat([one.flatten() for one in torch.autograd.grad(y, leaves, gradient)])
