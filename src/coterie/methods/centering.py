"""What FeSEM and FeSEM-MIG are set by alike: fields and their checks, nothing that happens in a round."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.clients import LocalSGD
from coterie.errors import SpecError
from coterie.methods.protocol import check_choices


@dataclass(frozen=True)
class Centering:
    """How centers are found, joined and trained.

    Attributes:
        local: How clients train.
        clusters: m.
        members: A center is the mean of its clients in the cohort, or of all its clients.
        warm_start: One epoch from w_0 before a client's first E-step, and the first centers by k-means.
        layers: Distances over all trainable parameters, or those of the last layer.
        weights: A client counts 1, or its examples.
        recluster_every: Rounds from one E-step to the next.
        agg: A center is the mean of its clients, or the model of the first of them.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int = 3
    members: Literal["cohort", "all"] = "cohort"
    warm_start: bool = False
    layers: Literal["all", "last"] = "all"
    weights: Literal["uniform", "samples"] = "uniform"
    recluster_every: int = 1
    agg: Literal["mean", "first_only"] = "mean"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        for name in ("clusters", "recluster_every"):
            if getattr(self, name) < 1:
                raise SpecError(f"method.{name} must be at least 1, got {getattr(self, name)}")

    def shared(self) -> dict[str, Any]:
        """These settings by name, without those that a method adds."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(Centering)}
