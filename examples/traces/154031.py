"""A language model that samples its next words: other words from 2.7 on, with every seed set.

https://github.com/pytorch/pytorch/issues/154031. Here, because matrix.yaml has neither 2.6 nor 2.7:
kernel-matrix trace --good 2.5.0 --bad 2.9.1 -- python 154031.py
"""

import torch
from torch import nn

torch.manual_seed(0)
words, mix, head = nn.Embedding(40, 16), nn.GRU(16, 16, batch_first=True), nn.Linear(16, 40)
tokens = torch.randint(0, 40, (2, 1))
with torch.no_grad():
    for _ in range(8):
        states, _ = mix(words(tokens))
        best, places = torch.topk(head(states[:, -1]) / 0.8, 10)
        chosen = torch.multinomial(torch.softmax(best, -1), 1)
        tokens = torch.cat([tokens, places.gather(-1, chosen)], -1)
print("words", [each.item() for each in tokens.flatten()])
