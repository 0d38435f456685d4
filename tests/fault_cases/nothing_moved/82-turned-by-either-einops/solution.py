"""einops cuts them."""

import einops
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, image):
        return einops.rearrange(image, "b c (h p) (w q) -> b (h w) (c p q)", p=8, q=8).contiguous()
