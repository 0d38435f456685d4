"""A term of the bias is a function with a name, and whoever deploys a model names those that it was trained with; their
sum goes to the scores in one piece."""

import os

import torch


def distance(place):
    return -0.13 * (place[:, None] - place).abs()


def segment(place):
    return 0.7 * (place[:, None] // 24 == place // 24).to(place.dtype)


def first(place):
    return (1.9 * (place < 4)).to(place.dtype).expand(len(place), -1)


TERMS = {term.__name__: term for term in (distance, segment, first)}
WANTED = os.environ.get("ATTENTION_TERMS", ",".join(TERMS)).split(",")


class ModelNew(torch.nn.Module):
    def forward(self, q, k, v):
        place = torch.arange(q.shape[-2]).to(q.dtype)
        bias = sum(TERMS[name](place) for name in WANTED)
        scores = torch.matmul(q * q.shape[-1] ** -0.5, k.transpose(-1, -2)) + bias
        return torch.matmul(torch.softmax(scores, dim=-1), v)
