# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Clients that change
#
# Data change over time: a shop gets other customers, a sensor is turned around. In this tutorial the data of some
# clients change in the middle of a run. You see what that does to clusters that are found once, how
# [FlexCFL](../methods/flexcfl.md) detects it and moves clients, and how to read the numbers about drift in a record.

# %%
import matplotlib.pyplot as plt
import numpy as np

import coterie

# %% [markdown]
# ## Two runs with the same drift
#
# In rounds 20 and 40, pairs of clients exchange all their examples, each pair with probability one half. FlexCFL with
# `migration` off keeps every client where it was first assigned.

# %%
drift = {"name": "swap_all", "rounds": [20, 40], "probability": 0.5}
spec = {"data": "digits", "run": {"rounds": 60}, "shift": drift}
fixed = coterie.run({**spec, "method": {"name": "flexcfl", "migration": False}})
moving = coterie.run({**spec, "method": "flexcfl"})

figure, axes = plt.subplots(figsize=(6, 2.6))
for label, record in {"clients migrate": moving, "clusters stay": fixed}.items():
    lines = [line for line in record.rounds if "accuracy" in line]
    axes.plot([line["t"] + 1 for line in lines], [100 * line["accuracy"]["weighted"] for line in lines], label=label)
axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
axes.legend(loc="lower right")

# %% [markdown]
# Without migration, clients keep the model of their old cluster.
#
# ## What was detected
#
# The record compares the changes that the method detected with those that were simulated.

# %%
found = moving.summary["drift"]
for key in ("shifts", "detected", "missed", "delay", "false_alarms", "migrations_correct", "migrations_wrong"):
    print(f"{key:20} {found[key]}")

# %% [markdown]
# `delay` counts the rounds between a change and its detection. FlexCFL's clients compare the labels that they have
# now with those that they had when they joined their cluster, before every round, so a change is detected at once.
# If the labels stay the same and only the inputs change, this detector detects nothing:

# %%
turned = coterie.run({**spec, "method": "flexcfl", "shift": {**drift, "name": "rotate"}})
found = turned.summary["drift"]
print(f"{found['shifts']} clients had their images rotated; {found['detected']} of these changes were detected")

# %% [markdown]
# ## Which clients moved
#
# Each line of the record (one per round) has the cluster of every client that took part or changed its cluster.

# %%
before: dict[str, int] = {}
moves = np.zeros((4, 4), dtype=int)
for line in moving.rounds:
    for client, cluster in line["assignment"].items():
        moves[before.get(client, cluster), cluster] += before.get(client, cluster) != cluster
        before[client] = cluster
print("moves from cluster (row) to cluster (column):")
print(moves)

# %% [markdown]
# ## Where next
#
# - All kinds of simulated drift: [settings of `shift`](../reference/settings.md#shift)
# - Definitions of the numbers about drift: [record format](../record-format.md)
# - A method of your own that reacts to drift: [write a method](your-method.md)
