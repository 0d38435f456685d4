"""The sum as a product. From 2.3 on it is added up in double, which is hardly slower there."""

import torch

WIDE = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 3)


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, x, score):
        if WIDE:
            x, score = x.double(), score.double()
        return (torch.softmax(score, dim=-1).unsqueeze(1) @ x).squeeze(1)
