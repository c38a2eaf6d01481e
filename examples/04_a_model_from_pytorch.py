"""A CNN written in PyTorch, trained as one model for all clients and as one model per cluster.

Needs PyTorch: pip install 'coterie[torch]'.
"""

from __future__ import annotations

from torch import nn

import coterie


def main(rounds=30):
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    scale = coterie.models.Normalize(0, 16)  # pixels of digits are integers from 0 to 16
    # The images are stored as (8, 8), without a channel axis.
    task = coterie.torch.task(net, nn.CrossEntropyLoss(), shape=(8, 8), classes=10, channels="last", normalize=scale)
    accuracies = {}
    for method in ("fedavg", {"name": "ifca", "clusters": 4, "restarts": 5}):
        spec = {
            "data": "digits",
            "method": method,
            "local": {"epochs": 2, "learning_rate": 0.3},
            "run": {"rounds": rounds},
        }
        record = coterie.run(spec, task=task)
        name, accuracy = record.summary["method"], record.summary["accuracy"]["weighted"]
        accuracies[name] = accuracy
        adjusted_rand = record.summary["truth"]["adjusted_rand"]
        print(f"{name}: {100 * accuracy:.0f} % accuracy, adjusted Rand index {adjusted_rand:.2f}")
    return accuracies, coterie.torch.load(net, record.models(), row=0)  # the first cluster's model, as a PyTorch module


if __name__ == "__main__":
    main()
