"""The mean over windows of three by three, zeros beyond the border."""

import torch


class Model(torch.nn.Module):
    def forward(self, image):
        return torch.nn.functional.avg_pool2d(image, 3, stride=1, padding=1)


def get_inputs():
    return [torch.randn(4, 8, 60, 60)]


def get_init_inputs():
    return []
