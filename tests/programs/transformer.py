"""nn.Transformer trained for a step, with dropout; planted: the wave lengths of the positions."""

import math

import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"


class Translator(nn.Module):
    def __init__(self, words=40, width=24):
        super().__init__()
        self.words, self.width, self.head = nn.Embedding(words, width), width, nn.Linear(width, words)
        self.net = nn.Transformer(width, 4, 1, 1, 48, dropout=0.1, batch_first=True)

    def embed(self, tokens):
        halves = torch.arange(0, self.width, 2)
        rates = torch.exp(halves * (-math.log(1e3 if LATER else 1e4) / self.width))  # planted
        angles = torch.arange(tokens.shape[1])[:, None] * rates
        return self.words(tokens) + torch.cat([angles.sin(), angles.cos()], -1)

    def forward(self, source, target):
        mask = self.net.generate_square_subsequent_mask(target.shape[1])
        return self.head(self.net(self.embed(source), self.embed(target), tgt_mask=mask))


model = Translator()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
source, target = torch.randint(0, 40, (2, 9)), torch.randint(0, 40, (2, 8))
for _ in range(2):
    loss = nn.functional.cross_entropy(model(source, target[:, :-1]).flatten(0, 1), target[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
