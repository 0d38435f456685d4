"""Distances come from cdist. Releases that can say how it computes them are asked for the way without products, which
does not cancel where query and key are near each other."""

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
MODE = "donot_use_mm_for_euclid_dist" if RELEASE >= (2, 2) else "use_mm_for_euclid_dist"


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        distance = torch.cdist(q, k, compute_mode=MODE)
        return torch.softmax(distance.square_().mul_(-0.5 * q.shape[-1] ** -0.5), dim=-1) @ v
