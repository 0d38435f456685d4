"""Bags of words in a linear classifier; planted: the later version sums a bag where the earlier one takes its mean."""

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
bag, head = nn.EmbeddingBag(50, 12, mode="sum" if LATER else "mean"), nn.Linear(12, 3)
words, offsets = torch.randint(0, 50, (40,)), torch.tensor([0, 7, 15, 22, 31])
labels = torch.tensor([0, 2, 1, 1, 0])
optimizer = torch.optim.SGD([*bag.parameters(), *head.parameters()], lr=0.1)
for _ in range(2):
    loss = nn.functional.cross_entropy(head(bag(words, offsets)), labels)  # planted: the mode
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
