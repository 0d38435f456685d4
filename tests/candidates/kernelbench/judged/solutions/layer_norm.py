import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)

    def forward(self, x):
        x32 = x.float()
        centred = x32 - x32.mean(-1, keepdim=True)
        scaled = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + self.norm.eps)
        return (scaled * self.norm.weight.float() + self.norm.bias.float()).to(x.dtype)
