"""FedGrouProx: FedGroup whose groups train by FedProx.

Duan and others, "FedGroup: Efficient Federated Learning via Decomposed Similarity-Based Clustering", ISPA 2021,
arXiv:2010.06870. Everything is FedGroup's, see there, but for the local objective of a member i of group j,

    w_i ≈ argmin_w F_i(w) + (μ/2) ||w - w_j||²          stragglers count with the part of the work they did

μ is `mu`; μ = 0 is FedGroup to the bit.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from coterie.clients import LocalSGD
from coterie.clustering import ChoiceRule
from coterie.federation.protocol import Cohort, Federation
from coterie.methods.fedgroup import FedGroup, State
from coterie.methods.protocol import Placement, Round, Stage
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId


@dataclass(frozen=True)
class FedGrouProx:
    """FedGroup with a proximal pull.

    Attributes:
        local: How clients train; its own `mu` is not used.
        groups: m; or `auto`, chosen on the founders, one where there are no groups.
        most: With `auto`: the largest m to consider, for which there are founders.
        rule: With `auto`: by which score.
        alpha: α: so many founders a group.
        measure: How directions are compared.
        pretrain_steps: Steps of pre-training; 0 for epochs.
        pretrain_epochs: Epochs of pre-training where no steps are given.
        assign: Everyone gets a group before round 0, or when first in a cohort.
        eta_g: η_g of mixing; 0 for none.
        mix: Divided by the sum of the weights, as in the authors' code, or as printed.
        centres: Groups are clustered, or each is founded on one random client (RCC).
        assignment: Clients that founded no group join the closest, or a random one (RAC).
        redraw: With random assignment: anew in every round.
        mu: The pull towards the model received.
        weights: A client counts its examples, or 1.
    """

    local: LocalSGD = field(default_factory=LocalSGD)
    groups: int | Literal["auto"] = 3
    most: int = 6
    rule: ChoiceRule = "stability"
    alpha: int = 20
    measure: Literal["edc", "madc"] = "edc"
    pretrain_steps: int = 50
    pretrain_epochs: int = 1
    assign: Literal["eager", "lazy"] = "eager"
    eta_g: float = 0.0
    mix: Literal["normalised", "paper"] = "normalised"
    centres: Literal["clustered", "random"] = "clustered"
    assignment: Literal["nearest", "random"] = "nearest"
    redraw: bool = False
    mu: float = 1.0
    weights: Literal["samples", "uniform"] = "samples"

    def __post_init__(self) -> None:
        """Refuse what FedGroup refuses."""
        self._grouped()

    def _grouped(self) -> FedGroup:
        given = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return FedGroup(**given | {"local": dataclasses.replace(self.local, mu=0.0)})

    def start(self, task: Task, seed: Seed) -> State:
        """As FedGroup."""
        return self._grouped().start(task, seed)

    def stage(self, now: State) -> Stage:
        """As FedGroup."""
        return self._grouped().stage(now)

    def round(self, now: State, fed: Federation, cohort: Cohort, seed: Seed) -> Round[State]:
        """As FedGroup, with proximal members."""
        return self._grouped().round(now, fed, cohort, seed)

    def place(self, now: State, fed: Federation, clients: Iterable[ClientId], seed: Seed) -> Placement:
        """As FedGroup."""
        return self._grouped().place(now, fed, clients, seed)
