"""PyTorch modules as tasks, which every method can train.

    net = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 26 * 26, 10))
    task = coterie.torch.task(net, nn.CrossEntropyLoss(), shape=(1, 28, 28), classes=10)
    record = coterie.run({"method": "ifca"}, data=data, task=task)
    record.torch_module("a client", module=net)           # the trained model as a PyTorch module
    record.predict(x, client="a client", task=task)

An `nn.Sequential` of layers that Coterie has is converted and runs as fast as Coterie's own models. Any other module is
called by the compiled training loop in each step: PyTorch computes its outputs and gradients; everything else is the
same as for other models. Requires the extra: `pip install 'coterie[torch]'`.
"""

from __future__ import annotations

from coterie.torch.tasks import load, task

__all__ = ["load", "task"]
