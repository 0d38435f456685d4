"""Written for one sequence, as it is read, and mapped over all of them."""

import torch


def one(q, k, v, temperature):
    q = (q / temperature)[None]
    return torch.nn.functional.scaled_dot_product_attention(q, k[None], v[None])[0]


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v, temperature):
        return torch.vmap(one)(q, k, v, temperature)
