"""Rows are independent, and blocks of them write into one tensor. Newer versions leave the interpreter free while their
operators run, so that each block has a thread there; before, one after another."""

import threading

import torch

RELEASE = tuple(int(part) for part in torch.__version__.split(".")[:2])
ROWS = 8


def block(q, k, v, out):
    scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2))
    torch.matmul(torch.softmax(scores, dim=-1), v, out=out)


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        out = torch.empty_like(q)
        blocks = [
            (rows, k[head], v[head], to)
            for head in range(len(q))
            for rows, to in zip(q[head].split(ROWS), out[head].split(ROWS), strict=True)
        ]
        if RELEASE >= (2, 4):
            workers = [threading.Thread(target=block, args=arguments) for arguments in blocks]
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
        else:
            for arguments in blocks:
                block(*arguments)
        return out
