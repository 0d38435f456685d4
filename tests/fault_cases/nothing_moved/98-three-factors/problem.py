"""Three factors of about the same size."""

import torch


class Model(torch.nn.Module):
    def forward(self, first, second, third):
        return first @ second @ third


def get_inputs():
    return [torch.randn(512, 640) * 0.04, torch.randn(640, 768) * 0.04, torch.randn(768, 576)]


def get_init_inputs():
    return []
