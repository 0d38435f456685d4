"""A function with a backward of its own, beside autograd's; planted: the later backward leaves a term out."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x)
        slope = s if LATER else s + x * s * (1 - s)  # planted
        return grad * slope


first, second = nn.Linear(9, 14), nn.Linear(14, 2)
optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=0.1, momentum=0.9)
x = torch.randn(7, 9)
for _ in range(2):
    loss = torch.tanh(second(Swish.apply(first(x)))).square().sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
