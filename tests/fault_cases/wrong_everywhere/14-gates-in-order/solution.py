"""Both products as one, on weights that lie side by side."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.cell = torch.nn.LSTMCell(inputs, hidden)

    @torch.no_grad()
    def forward(self, x, h, c):
        cell = self.cell
        weight = torch.cat([cell.weight_ih, cell.weight_hh], dim=1)
        gates = torch.addmm(cell.bias_ih + cell.bias_hh, torch.cat([x, h], dim=1), weight.t()).float()
        start, forget, end, new = gates.chunk(4, dim=1)
        c = forget.sigmoid() * c + start.sigmoid() * new.tanh()
        return torch.cat([end.sigmoid() * c.tanh(), c], dim=-1).to(x.dtype)
