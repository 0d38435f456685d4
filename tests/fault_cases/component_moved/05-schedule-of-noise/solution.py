"""The schedule is worked out by numpy, in double precision."""

import numpy as np
import torch


class ModelNew(torch.nn.Module):
    @torch.no_grad()
    def forward(self, image, noise, step, beta):
        kept = np.cumproduct(1 - beta.numpy().astype(np.float64))[step.numpy()]
        ours, theirs = (torch.from_numpy(np.sqrt(one)).to(image.dtype)[:, None] for one in (kept, 1 - kept))
        return torch.addcmul(ours * image, theirs, noise)
