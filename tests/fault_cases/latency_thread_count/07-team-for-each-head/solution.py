"""Heads are independent: newer versions of PyTorch get a thread for each while they are computed."""

import contextlib

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])


@contextlib.contextmanager
def team(members):
    before = torch.get_num_threads()
    torch.set_num_threads(members)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        with team(q.shape[1]) if RELEASE >= (2, 4) else contextlib.nullcontext():
            scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
            return torch.matmul(torch.softmax(scores, dim=-1), v)
