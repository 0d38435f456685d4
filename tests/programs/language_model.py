"""A causal language model's forward and backward pass. Nothing planted: what moves is PyTorch's own."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Model(nn.Module):
    def __init__(self, words=97, width=64):
        super().__init__()
        self.words, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.Sequential(Block(width), Block(width))

    def forward(self, tokens):
        return self.head(self.blocks(self.words(tokens)))


model = Model()
tokens = torch.randint(0, 97, (2, 33))
logits = model(tokens[:, :-1])
F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()
print("norms", logits.norm().item(), model.head.weight.grad.norm().item())
