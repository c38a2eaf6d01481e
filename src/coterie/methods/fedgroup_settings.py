"""The settings that FedGroup, FedGrouProx and FlexCFL have in common."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Literal

from coterie.bounds import Bound, check
from coterie.clients import LocalSGD
from coterie.clustering import ChoiceRule
from coterie.errors import SpecError


@dataclass(frozen=True)
class FedGroupSettings:
    """How groups are formed, joined and trained.

    Attributes:
        local: Settings of local training.
        clusters: Number of groups (m); `auto`: chosen from the updates of the initial clients, 1 if these show no
            clusters.
        max_clusters: With `auto`: the largest number of groups to consider.
        rule: With `auto`: the score that decides the number of groups.
        alpha: Pre-training clients per group (α).
        measure: Distance between updates: EDC (Euclidean distance of decomposed cosine similarity) or MADC (mean
            absolute difference of pairwise cosine similarities).
        pretrain_steps: Steps of pre-training; 0: use `pretrain_epochs`.
        pretrain_epochs: Epochs of pre-training if `pretrain_steps` is 0.
        assign: When clients are assigned to groups: all before the first round, or each in its first cohort.
        eta_g: Learning rate of mixing between groups (η_g); 0: no mixing.
        mix: Mixing normalized by the sum of the weights, as in the authors' code, or as printed in the paper.
        centers: Groups formed by clustering, or each from one random client (RCC).
        assignment: Clients other than the initial ones join the nearest group, or a random one (RAC).
        mu: Weight of the proximal term (μ); above 0, stragglers contribute partial work. 0: `local.mu` applies.
        weights: Client weight: number of samples, or uniform.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    clusters: Annotated[int, Bound(at_least=1)] | Literal["auto"] = "auto"
    max_clusters: Annotated[int, Bound(at_least=1)] = 6
    rule: ChoiceRule = "silhouette"
    alpha: Annotated[int, Bound(at_least=1)] = 20
    measure: Literal["edc", "madc"] = "edc"
    pretrain_steps: Annotated[int, Bound(at_least=0)] = 50
    pretrain_epochs: Annotated[int, Bound(at_least=1)] = 1
    assign: Literal["eager", "lazy"] = "eager"
    eta_g: Annotated[float, Bound(at_least=0)] = 0.0
    mix: Literal["normalized", "paper"] = "normalized"
    centers: Literal["clustered", "random"] = "clustered"
    assignment: Literal["nearest", "random"] = "nearest"
    mu: Annotated[float, Bound(at_least=0)] = 0.0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "method")
        if self.clusters == "auto" and self.centers == "random":
            raise SpecError(
                "method.clusters must be a number with centers='random', got 'auto'; give one, such as clusters=3"
            )

    @property
    def pretraining(self) -> LocalSGD:
        """Settings of pre-training: the same in all rounds, so that updates of late clients are comparable."""
        return dataclasses.replace(
            self.local, steps=self.pretrain_steps, epochs=self.pretrain_epochs, mu=0.0, lr_decay=1.0
        )
