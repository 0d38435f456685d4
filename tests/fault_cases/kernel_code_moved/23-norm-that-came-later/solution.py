"""The norm. Newer versions have one of their own."""

import torch

HAS_NORM = torch.torch_version.TorchVersion(torch.__version__) >= "2.4"


class ModelNew(torch.nn.Module):
    def forward(self, x):
        if HAS_NORM:
            return torch.nn.functional.rms_norm(x, x.shape[-1:])
        return x * torch.rsqrt(x.square().mean(dim=-1, keepdim=True) + 1e-5)
