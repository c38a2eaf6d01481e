# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # From PyTorch and back
#
# A PyTorch module is trained on arrays of your own, one model per cluster. Each client gets its model back as a PyTorch
# module that predicts what the record predicts. Needs PyTorch: `pip install 'coterie[torch]'`.

# %%
from __future__ import annotations

import numpy as np
import torch
from torch import nn

import coterie

# %% [markdown]
# ## Arrays
#
# Six sensors with 80 examples of four features each. The class is the sign of the product of two features; for sensors
# d, e and f the classes are swapped.

# %%
draw = np.random.default_rng(0)


def sensor(swapped):
    x = draw.normal(size=(80, 4)).astype(np.float32)
    return x, ((x[:, 0] * x[:, 1] > 0) != swapped).astype(int)


truth = {f"sensor-{letter}": int(letter in "def") for letter in "abcdef"}
arrays = {name: sensor(bool(group)) for name, group in truth.items()}
data = coterie.data.from_arrays(arrays, truth=truth)

# %% [markdown]
# ## Train
#
# The module returns logits. No normalization is set, so the module gets the arrays as they are; a task with `normalize`
# has a module that takes normalized inputs.

# %%
net = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2))
task = coterie.torch.task(net, nn.CrossEntropyLoss(), shape=(4,), classes=2)
spec = {
    "method": {"name": "ifca", "clusters": 2, "restarts": 3},
    "local": {"learning_rate": 0.1, "epochs": 5},
    "run": {"rounds": 15},
}
record = coterie.run(spec, data=data, task=task)
print(f"accuracy {record.summary['accuracy']['weighted']:.2f}")
print(f"adjusted Rand index {record.summary['truth']['adjusted_rand']:.2f}")

# %% [markdown]
# ## Back to PyTorch
#
# `torch_module` returns a copy of the module in evaluation mode, with the parameters of the client's cluster.

# %%
largest_difference = 0.0
for client in data.clients:
    module = record.torch_module(client, module=net)
    x, _ = data.examples(client, "test")
    with torch.no_grad():
        probabilities = module(torch.from_numpy(x)).softmax(dim=1).numpy()
    expected = record.predict_proba(x, client=client, task=task)
    difference = float(np.abs(probabilities - expected).max())
    largest_difference = max(largest_difference, difference)
    labels = record.predict(x, client=client, task=task)
    assert np.array_equal(probabilities.argmax(axis=1), labels)
print(f"largest difference between probabilities: {largest_difference:.1e}")
assert largest_difference < 1e-5
