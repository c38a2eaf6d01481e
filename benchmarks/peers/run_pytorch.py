"""A round as plain PyTorch loops: `dataloader` or `tight`, with one or two threads."""

from __future__ import annotations

import torch
from pytorch_loops import one_round, tensors
from worker import clients, seconds, serve, steps


def run(request):
    torch.set_num_threads(request["threads"])
    examples = [tensors(x, y) for x, y in clients(request["clients"])]
    settings = (request["epochs"], request["batch_size"], request["learning_rate"])
    return seconds(one_round, request["kind"], request["model"], examples, *settings), steps(request)


if __name__ == "__main__":
    serve(run)
