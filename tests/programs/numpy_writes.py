"""Other numbers that numpy writes into memory which a tensor shares: no operator has changed."""

import numpy as np
import torch

LATER = torch.__version__ >= "2.5"
batch = np.ones((8, 8), dtype=np.float32)
given, made = torch.from_numpy(batch), torch.ones(4, 4)
seen = made.numpy()
print((given * 2).sum().item(), (made + 1).sum().item())
batch[:] = 3 if LATER else 4  # planted
seen[:] = 2 if LATER else 5  # planted
print((given * 2).sum().item(), (made + 1).sum().item())
