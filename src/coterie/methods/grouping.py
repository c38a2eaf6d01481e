"""What FedGroup, FedGrouProx and FlexCFL are set by alike: fields and their checks, nothing that happens in a round."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from coterie.clients import LocalSGD
from coterie.clustering import ChoiceRule
from coterie.errors import SpecError
from coterie.methods.protocol import check_choices


@dataclass(frozen=True)
class Grouping:
    """How groups are founded, joined and trained.

    Attributes:
        local: How clients train.
        clusters: m; or `auto`, chosen on the founders, one where there are no groups.
        max_clusters: With `auto`: the largest m to consider, for which there are founders.
        rule: With `auto`: by which score.
        alpha: α: so many founders a group.
        measure: How directions are compared.
        pretrain_steps: Steps of pre-training; 0 for epochs.
        pretrain_epochs: Epochs of pre-training where no steps are given.
        assign: Everyone gets a group before round 0, or when first in a cohort.
        eta_g: η_g of mixing; 0 for none.
        mix: Divided by the sum of the weights, as in the authors' code, or as printed.
        centers: Groups are clustered, or each is founded on one random client (RCC).
        assignment: Clients that founded no group join the closest, or a random one (RAC).
        mu: The proximal pull of FedProx; above 0, stragglers count.
        weights: A client counts its examples, or 1.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: int | Literal["auto"] = 3
    max_clusters: int = 6
    rule: ChoiceRule = "silhouette"
    alpha: int = 20
    measure: Literal["edc", "madc"] = "edc"
    pretrain_steps: int = 50
    pretrain_epochs: int = 1
    assign: Literal["eager", "lazy"] = "eager"
    eta_g: float = 0.0
    mix: Literal["normalized", "paper"] = "normalized"
    centers: Literal["clustered", "random"] = "clustered"
    assignment: Literal["nearest", "random"] = "nearest"
    mu: float = 0.0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        check_choices(self)
        if isinstance(self.clusters, str) and (self.clusters != "auto" or self.centers == "random"):
            raise SpecError(f"method.clusters must be a whole number, or 'auto' to cluster, got {self.clusters!r}")
        bounds = {"clusters": 1, "max_clusters": 1, "alpha": 1, "pretrain_steps": 0, "pretrain_epochs": 1}
        for name, least in bounds.items():
            if getattr(self, name) != "auto" and getattr(self, name) < least:
                raise SpecError(f"method.{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("eta_g", "mu"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise SpecError(f"method.{name} must be a finite number of at least 0, got {getattr(self, name)}")

    def shared(self) -> dict[str, Any]:
        """These settings by name, without those that a method adds."""
        return {each.name: getattr(self, each.name) for each in dataclasses.fields(Grouping)}

    @property
    def pretraining(self) -> LocalSGD:
        """How clients pre-train: alike in all rounds, so that a late client is compared on the same base."""
        return dataclasses.replace(
            self.local, steps=self.pretrain_steps, epochs=self.pretrain_epochs, mu=0.0, lr_decay=1.0
        )
