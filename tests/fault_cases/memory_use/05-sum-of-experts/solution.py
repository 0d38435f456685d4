"""Experts one after another. From 2.3 on their outputs are added up at the end, in one pass over all of them."""

import torch

AT_THE_END = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 3)


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x, weights):
        if AT_THE_END:
            return torch.stack([(x @ weight).tanh_() for weight in weights]).sum(dim=0)
        total = (x @ weights[0]).tanh_()
        for weight in weights[1:]:
            total += (x @ weight).tanh_()
        return total
