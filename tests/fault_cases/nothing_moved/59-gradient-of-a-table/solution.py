"""index_put_ adds rows in parallel, which index_add does not."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, tokens):
        super().__init__()
        self.tokens = tokens

    def forward(self, gradient, token):
        table = gradient.new_zeros(self.tokens, gradient.shape[1])
        return table.index_put_((token,), gradient, accumulate=True)
