"""Coterie: clustered federated learning. Clients keep their data, fall into kinds, and get the model of their kind."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
