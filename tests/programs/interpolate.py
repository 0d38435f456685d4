"""Pooling and resizing of images under no_grad; planted: the later version aligns the corners."""

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
LATER = torch.__version__ >= "2.5"
conv = nn.Conv2d(3, 6, 3, padding=1)
images = torch.rand(2, 3, 16, 16)
with torch.no_grad():
    small = F.max_pool2d(F.relu(conv(images)), 2)
    large = F.interpolate(small, size=(19, 19), mode="bilinear", align_corners=LATER)  # planted
    result = F.adaptive_avg_pool2d(large, 3)
print(result.sum().item())
