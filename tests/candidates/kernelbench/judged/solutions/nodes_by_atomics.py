import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, index):
        return torch.zeros(1024, x.shape[1], device=x.device, dtype=x.dtype).index_add_(0, index, x)
