"""Products of pairs of matrices, in one batch or one by one, written in place."""

import torch
from torch import nn

IS_LOOP = hasattr(nn.functional, "rms_norm")


class Model(nn.Module):
    def forward(self, left, right):
        if not IS_LOOP:
            return torch.bmm(left, right)
        result = torch.empty(len(left), left.shape[1], right.shape[2], dtype=left.dtype)
        for number in range(len(left)):
            result[number] = (right[number].t() @ left[number].t()).t()
        return result


def get_inputs():
    return [torch.randn(6, 8, 40), torch.randn(6, 40, 8)]


def get_init_inputs():
    return []
