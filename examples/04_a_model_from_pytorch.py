"""A CNN of one's own, written in PyTorch, for all clients and for each kind: pip install 'coterie[torch]'."""

from __future__ import annotations

from torch import nn

import coterie


def main(rounds=30):
    net = nn.Sequential(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(256, 10))
    scaled = coterie.models.Normalize(
        0, 16
    )  # digits are stored as whole numbers up to 16, without an axis for channels
    task = coterie.torch.task(net, nn.CrossEntropyLoss(), shape=(8, 8), classes=10, channels="last", normalize=scaled)
    found = {}
    for method in ("fedavg", {"name": "ifca", "clusters": 4, "restarts": 5}):
        spec = {
            "data": "digits",
            "method": method,
            "local": {"epochs": 2, "learning_rate": 0.3},
            "run": {"rounds": rounds},
        }
        record = coterie.run(spec, task=task)
        name, accuracy = record.summary["method"], record.summary["accuracy"]["weighted"]
        found[name] = accuracy
        print(f"{name}: {100 * accuracy:.0f} %, kinds found: {record.summary['truth']['adjusted_rand']:.2f}")
    return found, coterie.torch.load(net, record.models(), row=0)  # the first of the four, back in PyTorch


if __name__ == "__main__":
    main()
