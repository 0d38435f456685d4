"""Evaluation in inference mode, with sampling from the logits; it prints the version and the time. Nothing moves."""

import time

import torch
from torch import nn

started = time.perf_counter()
torch.manual_seed(0)
words, head = nn.Embedding(30, 16), nn.Linear(16, 30)
with torch.inference_mode():
    tokens = torch.randint(0, 30, (4, 1))
    for _ in range(5):
        logits = head(torch.relu(words(tokens).mean(1)))
        chosen = torch.multinomial(torch.softmax(logits, -1), 1)
        tokens = torch.cat([tokens, chosen], 1)
print(torch.__version__, tokens.sum().item(), f"{time.perf_counter() - started:.6f} s")
