# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # Tune with Optuna, track with MLflow
#
# The learning rate and the number of clusters of IFCA are searched on validation examples. The best settings are then
# run with more rounds, and MLflow stores that run in a local file. Needs both packages:
# `pip install 'coterie[optuna,mlflow]'`.

# %%
from __future__ import annotations

import os
from pathlib import Path

import optuna

import coterie

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")  # before MLflow is imported: nothing leaves this computer
from mlflow.tracking import MlflowClient

optuna.logging.set_verbosity(optuna.logging.WARNING)
folder = Path("runs") / "tune-and-track"

# %% [markdown]
# ## Search
#
# The 40 clients of `digits` have images rotated by 0°, 90°, 180° or 270°. Trials are scored by the primary metric on
# validation examples; no trial sees a test example. The study is stored in the folder: executed again, this cell
# continues it, and has nothing to do if there are enough trials.

# %%
study = coterie.tune(
    {
        "data": "digits",
        "method": {"name": "ifca", "restarts": 3},
        "run": {"rounds": 10, "primary_metric": "accuracy"},
    },
    over={"local.learning_rate": (0.003, 0.3, "log"), "method.clusters": (2, 6)},
    trials=8,
    out=folder,
)
for trial in study.rows:
    score = trial["state"] if trial["score"] is None else f"{trial['score']:.3f}"
    print(f"learning rate {trial['local.learning_rate']:.3f}, {trial['method.clusters']} clusters: {score}")
print(study)

# %% [markdown]
# The validation score of the best trial is the best of eight, and therefore biased. The test score is the one to
# report: that of one run of the best settings on test examples, which did not influence the choice. The two also differ
# because the test run has another seed, and trains on the validation examples as well.

# %%
print(f"validation {study.metric} {study.best_score:.3f}, test {study.metric} {study.test_score:.3f}")

# %% [markdown]
# ## Run and track
#
# The best settings with a new seed and more rounds. The tracker is an observer; the results do not depend on it.

# %%
store = f"sqlite:///{folder / 'mlflow.db'}"
final = study.best_spec.with_values({"run.seed": 101, "run.rounds": 30})
record = coterie.run(final, observers=[coterie.tracking.MLflow("tune-and-track", store)])
print(f"accuracy {record.summary['accuracy']['weighted_last_ten']:.3f}")

# %% [markdown]
# ## What MLflow has
#
# Settings are parameters, each round is a step of the metrics, and names of the summary begin with `final.`. To see it
# in a browser: `mlflow ui --backend-store-uri sqlite:///runs/tune-and-track/mlflow.db`.

# %%
client = MlflowClient(store)
experiment = client.get_experiment_by_name("tune-and-track")
tracked = client.search_runs([experiment.experiment_id], order_by=["start_time DESC"])[0]
history = client.get_metric_history(tracked.info.run_id, "accuracy.weighted")
print(tracked.info.run_name, tracked.info.status)
print("method.clusters", tracked.data.params["method.clusters"])
print("final.accuracy.weighted_last_ten", round(tracked.data.metrics["final.accuracy.weighted_last_ten"], 3))
