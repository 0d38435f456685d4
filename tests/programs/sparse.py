"""Sparse and quantised tensors that the script makes of other numbers in the later version; and a class of tensors."""

import torch


class Own(torch.Tensor):
    pass


LATER = torch.__version__ >= "2.5"
torch.manual_seed(0)
values = torch.randn(6, 6)
values.numpy()[:] *= 3 if LATER else 2  # planted
sparse, rows = values.to_sparse(), torch.randn(6, 4)
print(torch.sparse.mm(sparse, rows).sum().item())
layer = torch.ao.quantization.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(6, 6)), dtype=torch.qint8)
print(layer(rows.T).sum().item())
print(rows.as_subclass(Own).softmax(0)[0, 0].item())
