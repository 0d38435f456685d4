"""Sums along rows, then along columns, of an image with room for its border."""

import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, image):
        batch, channels, height, width = image.shape
        wide = image.new_empty(batch, channels, height + 2, width + 2)
        wide[:, :, 1:-1, 1:-1] = image
        wide[:, :, 0] = 0
        wide[:, :, -1] = 0
        rows = wide[..., :-2] + wide[..., 1:-1] + wide[..., 2:]
        return (rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:]) / 9
