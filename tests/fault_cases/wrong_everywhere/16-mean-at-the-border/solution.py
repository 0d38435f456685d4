"""Sums by a table of sums: four numbers for a window, however large."""

import torch


def ends(size):
    middle = torch.arange(0, size, 2)
    return (middle - 1).clamp(min=0), (middle + 2).clamp(max=size)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        table = torch.nn.functional.pad(x.double(), (1, 0, 1, 0)).cumsum(-1).cumsum(-2)
        top, bottom = ends(x.shape[-2])
        left, right = ends(x.shape[-1])
        rows = table[..., bottom, :] - table[..., top, :]
        count = (bottom - top)[:, None] * (right - left)
        return ((rows[..., right] - rows[..., left]) / count).to(x.dtype)
