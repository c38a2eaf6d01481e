# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Hospitals with a messy table
#
# From a CSV file to predictions: read the table, compare one model for all hospitals with one model per cluster, see
# who is in which cluster and why, place a hospital that joins later, and predict.

# %%
from __future__ import annotations

import csv
import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer

import coterie

# %% [markdown]
# ## The table
#
# 569 tumors (Wisconsin breast cancer data, part of scikit-learn) are divided among ten hospitals and a newcomer. Two
# groups are planted: devices of type B report the distance to the upper end of the scale instead of the size. Large
# numbers mean malignant in one group and benign in the other. The file has semicolons, decimal commas, text, missing
# values in two spellings, and patient numbers that mean nothing.

# %%
SIZES = ["mean radius", "mean texture", "mean area", "mean concavity", "mean symmetry"]
HOSPITALS = [f"hospital {number:02}" for number in range(1, 11)]
NEWCOMER = "newcomer"
DEVICE = {name: "AB"[number % 2] for number, name in enumerate([*HOSPITALS, NEWCOMER], start=1)}

draw = np.random.default_rng(0)
tumors = load_breast_cancer()
values = tumors.data[:, [list(tumors.feature_names).index(name) for name in SIZES]]
order = draw.permutation(len(values))
hospital_of = dict(zip(order, np.resize([*HOSPITALS, NEWCOMER], len(order)).tolist(), strict=True))


def row(number):
    """One tumor, as its hospital stores it."""
    hospital = hospital_of[number]
    sizes = values[number] if DEVICE[hospital] == "A" else values.max(axis=0) - values[number]
    cells = [f"{size:.4f}".replace(".", ",") for size in sizes]
    if draw.random() < 0.2:
        cells[draw.integers(len(cells))] = str(draw.choice(["", "NA"]))
    return {
        "patient": f"P{number:04}",
        "hospital": hospital,
        **dict(zip(SIZES, cells, strict=True)),
        "referral": str(draw.choice(["screening", "family doctor", "self"])),
        "diagnosis": str(tumors.target_names[tumors.target[number]]),
        "device": DEVICE[hospital],
    }


def write(path, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=";")
        writer.writeheader()
        writer.writerows(rows)


folder = Path(tempfile.mkdtemp())
table = folder / "hospitals.csv"
rows = [row(number) for number in order.tolist()]
write(table, [each for each in rows if each["hospital"] != NEWCOMER])
print("\n".join(table.read_text(encoding="utf-8").splitlines()[:3]))

# %% [markdown]
# ## What was understood
#
# `device` is the true cluster. It is used only to check the clusters that were found; leave the setting out if you do
# not know it, and add the column to `ignore` if models must not see it.

# %%
columns = {
    "client": "hospital",
    "label": "diagnosis",
    "truth": "device",
    "ignore": ["patient"],
    "test_share": 0.3,
}
data = coterie.data.from_table(table, **columns)
print(len(data.clients), "hospitals; classes:", ", ".join(data.class_names))
print("inputs:", ", ".join(data.features))
print(data.source)

# %% [markdown]
# ## One model, or one per cluster?
#
# `compare` takes specs, so the table is named by its path with the same settings.

# %%
shared = {
    "data": {"name": str(table), **columns},
    "local": {"learning_rate": 0.05, "epochs": 2},
    "run": {"rounds": 15},
}
comparison = coterie.compare(
    {
        "fedavg": {**shared, "method": "fedavg"},
        "ifca": {**shared, "method": {"name": "ifca", "clusters": 2, "restarts": 3}},
    },
    seeds=3,
    out=folder / "runs",
)
accuracy = {line["method"]: line["last_ten"] for line in comparison.table}
print(comparison.to_markdown())
assert accuracy["ifca"] > accuracy["fedavg"] + 0.1  # one model cannot follow both devices

# %% [markdown]
# ## Who is in which cluster, and why?
#
# IFCA puts a hospital where the loss on its own examples is lowest. The last two columns are the loss of its cluster
# and of the other one.

# %%
record = comparison.records["ifca"][0]
for each in record.inspect():
    print(
        f"{each.client}  device {DEVICE[each.client]}  cluster {each.cluster} since round {each.since}"
        f"  accuracy {each.accuracy:.2f}  {each.reason.what}: {each.own_value:.2f}, other {each.other_value:.2f}"
    )
cluster_of = {each.client: each.cluster for each in record.inspect()}
for device in "AB":  # all hospitals with the same device are together
    assert len({cluster_of[name] for name in HOSPITALS if DEVICE[name] == device}) == 1

# %% [markdown]
# ## A hospital joins later
#
# It took no part in training. Its table goes through the same encoding: columns are found by name.

# %%
joining = [each for each in rows if each["hospital"] == NEWCOMER]
diagnoses = [each["diagnosis"] for each in joining]
inputs = [*SIZES, "referral"]


def parsed(cell):
    """A number with a decimal comma; None if it is missing."""
    return None if cell in ("", "NA") else float(cell.replace(",", "."))


new = {name: [each[name] if name == "referral" else parsed(each[name]) for each in joining] for name in inputs}
placed = record.place(new, diagnoses, client=NEWCOMER)
print(f"{NEWCOMER}: cluster {placed.cluster}, margin {placed.margin:.2f}, agreement {placed.agreement:.2f}")
print(f"expected accuracy {placed.cluster_score['accuracy']:.2f}, own {placed.own_score['accuracy']:.2f}")
print(f"bytes: {placed.bytes['down']} down, {placed.bytes['up']} up")
assert placed.cluster == next(cluster_of[name] for name in HOSPITALS if DEVICE[name] == DEVICE[NEWCOMER])

# %% [markdown]
# ## Predict
#
# Predictions are class names. The order of the columns does not matter; missing and unknown columns are refused.

# %%
predicted = record.predict(new, cluster=placed.cluster)
reordered = record.predict({name: new[name] for name in reversed(inputs)}, cluster=placed.cluster)
assert list(reordered) == list(predicted)
newcomer_accuracy = float(np.mean(predicted == np.array(diagnoses)))
print("predicted:", ", ".join(map(str, predicted[:4])), "...")
print(f"accuracy on all {len(diagnoses)} tumors of the newcomer: {newcomer_accuracy:.2f}")

try:
    record.predict({name: new[name] for name in inputs[1:]}, cluster=placed.cluster)
except coterie.errors.Error as fault:
    refusal = str(fault)
    print(refusal)
