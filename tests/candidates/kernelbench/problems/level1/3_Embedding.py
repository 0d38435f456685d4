import torch
import torch.nn as nn


class Model(nn.Module):
    """Rows of a table by index, masked, and summed: integer and boolean inputs."""

    def __init__(self, words: int, width: int):
        super().__init__()
        self.table = nn.Embedding(words, width)

    def forward(self, index: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        return (self.table(index) * keep.unsqueeze(-1)).sum(dim=1)


words = 1000
width = 32


def get_inputs():
    return [torch.randint(0, words, (16, 24)), torch.rand(16, 24) < 0.9]


def get_init_inputs():
    return [words, width]
