# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # First run
#
# Forty clients hold handwritten digits. Ten of them see the digits upright, ten rotated by 90°, ten by 180°, and ten
# by 270°. The server does not know that. In this tutorial you train one model for all of them, see why that is not
# good enough, let a method find the clusters, and use the models. It takes about ten seconds.

# %%
import matplotlib.pyplot as plt

import coterie

data = coterie.data.load("digits")
data  # noqa: B018 - a notebook shows the value of the last line

# %% [markdown]
# ## The clients
#
# A client is a name with training and test examples. One client of each rotation:

# %%
figure, axes = plt.subplots(4, 8, figsize=(6, 3))
for row, client in zip(axes, ["00", "01", "02", "03"], strict=True):
    images, labels = data.examples(client, "fit")
    for place, cell in enumerate(row):
        cell.imshow(images[place], cmap="gray_r")
        cell.set(xticks=[], yticks=[])
    row[0].set_ylabel(f"client {client}", rotation=0, ha="right", va="center")

# %% [markdown]
# ## One model for all
#
# [FedAvg](../methods/fedavg.md) trains one model. A run is described by a spec: data, method and settings. Settings
# that are not given have a [default](../reference/settings.md).

# %%
one = coterie.run({"data": "digits", "method": "fedavg", "run": {"rounds": 40}})
print(f"accuracy over all clients: {one.summary['accuracy']['weighted']:.1%}")
print(f"the worst tenth of clients: {one.summary['accuracy']['worst_tenth']:.1%}")

# %% [markdown]
# A 6 upside down is a 9. No single model can be right for all clients.
#
# ## One model per cluster
#
# [FedGroup](../methods/fedgroup.md) looks at how the parameters of the model change when a client trains it. It
# clusters the clients by the directions of these changes, and chooses the number of clusters itself.

# %%
clustered = coterie.run({"data": "digits", "method": "fedgroup", "run": {"rounds": 40}})
summary = clustered.summary
print(f"accuracy over all clients: {summary['accuracy']['weighted']:.1%}")
print(f"the worst tenth of clients: {summary['accuracy']['worst_tenth']:.1%}")
print(f"clusters found: {summary['clusters']['count']}, of {summary['clusters']['sizes']} clients")
print(f"agreement with the rotations (adjusted Rand index): {summary['truth']['adjusted_rand']:.2f}")

# %% [markdown]
# An adjusted Rand index of 1 means that the clusters are exactly the four rotations; 0 would be chance. The server
# never saw an image: in the first step clients sent their changes of the model, and later rounds needed only sums per
# cluster. [Methods compared](../explanation/methods-compared.md) says what each method reveals.
#
# ## Over the rounds

# %%
figure, axes = plt.subplots(figsize=(6, 2.6))
for label, record in {"one model per cluster (fedgroup)": clustered, "one model (fedavg)": one}.items():
    lines = [line for line in record.rounds if "accuracy" in line]
    axes.plot([line["t"] + 1 for line in lines], [100 * line["accuracy"]["weighted"] for line in lines], label=label)
axes.set(xlabel="round", ylabel="test accuracy (%)", ylim=(0, 100))
axes.legend(loc="lower right")

# %% [markdown]
# ## Use the models
#
# The record holds the models and knows which client uses which one.

# %%
images, labels = data.examples("07", "test")
print("predicted:", clustered.predict(images, client="07").tolist())
print("labels:   ", labels.tolist())

# %% [markdown]
# The cluster of each client, and the accuracy of its model:

# %%
for each in clustered.inspect()[:6]:
    print(f"client {each.client}: cluster {each.cluster}, {each.accuracy:.0%} of {each.examples} test examples correct")

# %% [markdown]
# ## The same from the command line
#
# The record of a run is a folder. It has everything: spec, rounds, summary, models, results of every client.

# %% language="bash"
# coterie run --data digits --method fedgroup --rounds 40 --out runs/first --quiet
# coterie runs

# %% [markdown]
# ## Where next
#
# - Your own table instead of digits: [Hospitals with a messy table](your-data.md)
# - Which method for which purpose: [choose a method](../choosing.md)
# - Compare several methods with several seeds: [compare methods](../how-to/compare-methods.md)
# - Clients whose data change: [drift](drift.md)
