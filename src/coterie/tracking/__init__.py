"""Trackers: observers that report a run to TensorBoard, MLflow or Weights & Biases.

    coterie.run(spec, observers=[coterie.tracking.TensorBoard()])

Each needs an extra of the same name: `tensorboard`, `mlflow`, `wandb`. All report the same: parameters (the settings of
the spec by their names), tags (method, data, model, seed), metrics after each round with the number of the round as
step, and the summary at the end with names that begin with `final.`.
"""

from __future__ import annotations

from coterie.tracking.by_name import TRACKERS, named
from coterie.tracking.flattening import final_metrics, metrics, parameters, tags
from coterie.tracking.mlflow import MLflow
from coterie.tracking.tensorboard import TensorBoard
from coterie.tracking.wandb import WandB

__all__ = ["TRACKERS", "MLflow", "TensorBoard", "WandB", "final_metrics", "metrics", "named", "parameters", "tags"]
