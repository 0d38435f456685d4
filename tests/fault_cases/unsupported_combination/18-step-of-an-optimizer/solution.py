"""PyTorch's own loop of Adam over lists of tensors, without an optimizer around it."""

import torch
from torch.optim.adam import _single_tensor_adam


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, weight, gradient):
        weight = weight.clone()
        first, second, step = torch.zeros_like(weight), torch.zeros_like(weight), torch.zeros(())
        _single_tensor_adam(
            [weight],
            [gradient],
            [first],
            [second],
            [],
            [step],
            None,
            None,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=0.01,
            weight_decay=0.0,
            eps=1e-8,
            maximize=False,
            capturable=False,
            differentiable=False,
        )
        return weight
