"""A group norm of photographs as a decoder leaves them: channels last, and bright."""

import torch


class Model(torch.nn.Module):
    def forward(self, image):
        image = image.contiguous(memory_format=torch.channels_last)
        return torch.nn.functional.group_norm(image, 4)


def get_inputs():
    return [torch.randn(2, 16, 32, 32) + 120]


def get_init_inputs():
    return []
