"""One product for each tap; where operators on lists are there, sequences are laid out by one of them."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


def room(x, before):
    shape = (*x.shape[:-1], x.shape[-1] + before)
    if RELEASE < (2, 3):
        return torch.cat([x.new_zeros((*x.shape[:-1], before)), x], dim=-1)
    padded = x.new_empty(shape)
    torch._foreach_copy_(list(padded[..., before:]), list(x))
    return padded


class ModelNew(torch.nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.filter = torch.nn.Parameter(torch.randn(channels, 1, taps) * taps**-0.5)

    @torch.no_grad()
    def forward(self, x):
        taps, length = self.filter.shape[-1], x.shape[-1]
        padded = room(x, taps - 1)
        out = padded[..., :length] * self.filter[:, :, 0]
        for tap in range(1, taps):
            out.addcmul_(padded[..., tap : tap + length], self.filter[:, :, tap])
        return out
