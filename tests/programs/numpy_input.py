"""The data come from numpy; planted: the later version scales them there, where no operator is recorded."""

import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
data = np.random.default_rng(0).random((8, 6), dtype=np.float32)
data = data * np.float32(2) if LATER else data  # planted
net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 1))
print(net(torch.from_numpy(data)).sum().item())
