"""Cross entropy of the tokens that have a label; -100 is none."""

import torch


class Model(torch.nn.Module):
    def forward(self, x, label):
        return torch.nn.functional.cross_entropy(x, label, ignore_index=-100)


def get_inputs():
    label = torch.randint(0, 500, (256,))
    label[torch.rand(256) < 0.2] = -100
    return [torch.randn(256, 500), label]


def get_init_inputs():
    return []
