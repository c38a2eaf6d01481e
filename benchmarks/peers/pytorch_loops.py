"""The networks of the benchmarks in PyTorch, and two plain loops that train them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset


class CharLSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.dense = nn.Embedding(80, 8), nn.Linear(256, 80)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)

    def forward(self, ids):
        return self.dense(self.lstm(self.embedding(ids))[0][:, -1])


class BiGRU(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.GRU(300, 64, batch_first=True, bidirectional=True)
        self.second = nn.GRU(128, 32, batch_first=True, bidirectional=True)
        self.dense = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Dropout(0.5), nn.Linear(64, 2))

    def forward(self, words):
        forth, back = self.second(self.first(words)[0])[1]
        return self.dense(torch.cat([forth, back], dim=1))


def module(name):
    """The network with this name; initial parameters differ from Coterie's, which does not affect the time."""
    if name in ("charlstm", "bigru"):
        return CharLSTM() if name == "charlstm" else BiGRU()
    if name in ("mclr", "mlp"):
        sizes = (784, 128, 10) if name == "mlp" else (784, 10)
        dense = [layer for inputs, outputs in pairwise(sizes) for layer in (nn.Linear(inputs, outputs), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), *dense[:-1])

    def conv_block(inputs, outputs, padding):
        return [nn.Conv2d(inputs, outputs, 5, padding=padding), nn.ReLU(), nn.MaxPool2d(2)]

    if name == "cnn":
        return nn.Sequential(*conv_block(1, 32, 2), *conv_block(32, 64, 2), nn.Flatten(), nn.Linear(3136, 10))
    dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*conv_block(3, 6, 0), *conv_block(6, 16, 0), nn.Flatten(), *dense)


def tensors(x, y):
    """Examples as tensors: token ids or vectors as they are, images with the channels first."""
    if x.dtype.kind in "iu":
        inputs = torch.from_numpy(x).long()
    elif x.ndim == 3 and x.shape[1:] == (28, 28):
        inputs = torch.from_numpy(np.ascontiguousarray(x[:, None]))
    else:
        inputs = torch.from_numpy(np.ascontiguousarray(np.moveaxis(x, -1, 1) if x.ndim == 4 else x))
    return inputs, torch.from_numpy(y).long()


def batches(kind, x, y, size):
    """A function that returns the batches of one epoch: `dataloader` as most libraries do it, or `tight`."""
    if kind == "dataloader":
        loader = DataLoader(TensorDataset(x, y), batch_size=size, shuffle=True)
        return lambda: loader

    def tight():
        order = torch.randperm(len(y))
        return ((x[order[i : i + size]], y[order[i : i + size]]) for i in range(0, len(y), size))

    return tight


def train(model, epoch, epochs, learning_rate):
    """Local training: `epoch()` gives the batches of one pass."""
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    for _ in range(epochs):
        for inputs, labels in epoch():
            optimizer.zero_grad(set_to_none=True)
            cross_entropy(model(inputs), labels).backward()
            optimizer.step()


def one_round(kind, name, clients, epochs, batch_size, learning_rate):
    """One round: every client trains a new network."""
    for x, y in clients:
        train(module(name), batches(kind, x, y, batch_size), epochs, learning_rate)
