"""The decay from a key to a row is a quotient of two products of gates. Q can take one and K the other: no matrix of
decays is made."""

import torch


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, gates):
        product = torch.sigmoid(gates).cumprod(dim=-1)[..., None]
        return (q * product @ (k / product).transpose(-1, -2)).tril() @ v
