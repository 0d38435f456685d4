"""A norm over channels. From 2.4 on they are brought behind the pixels first, where the operators want them."""

import torch

BEHIND = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 4)


def normed(image, dim):
    variance, mean = torch.var_mean(image, dim=dim, correction=0, keepdim=True)
    return torch.sub(image, mean).mul_(variance.add_(1e-5).rsqrt_())


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, image):
        if BEHIND:
            return normed(image.movedim(1, -1).contiguous(), -1).movedim(-1, 1)
        return normed(image, 1)
