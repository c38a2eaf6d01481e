"""Clients that lie: a share of them, drawn once by seed, sends models that are to do harm.

With w the model that such a client was sent and w_k what it trained honestly:

    sign     w - s (w_k - w)          back from where it should go
    scale    w + s (w_k - w)          as if it were many
    noise    w_k + s ‖w_k - w‖/√d · N(0, 1)
    labels   trains on labels C - 1 - y; the run sees to that when it deals out the examples

s is `strength`. Where no model was sent to move from (updates, gradients), w is 0. All else that the client says, its
losses and its choices, is honest.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from coterie import tree
from coterie.clients.schema import Model
from coterie.errors import SpecError
from coterie.federation.order import Around, Block, Carrier, Order
from coterie.models import Task
from coterie.seeds import Seed
from coterie.types import ClientId, Params

Lie = Literal["none", "sign", "scale", "noise", "labels"]


@dataclass(frozen=True)
class Attack:
    """Who does harm, and how.

    Attributes:
        name: What attackers do.
        share: Of all clients, and of each true cluster where they are known; the same ones in every round.
        strength: s: how far they go.
    """

    name: Lie = "none"
    share: float = 0.2
    strength: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.name not in get_args(Lie):
            raise SpecError(f"attack.name must be one of {', '.join(map(repr, get_args(Lie)))}, got {self.name!r}")
        if not 0 <= self.share <= 1:
            raise SpecError(f"attack.share must lie between 0 and 1, got {self.share}")
        if not 0 <= self.strength < math.inf:
            raise SpecError(f"attack.strength must be finite and not negative, got {self.strength}")

    def by(self, clients: Sequence[ClientId], truth: Mapping[ClientId, int], seed: Seed) -> frozenset[ClientId]:
        """Who attacks.

        Args:
            clients: All of them.
            truth: The true cluster of each, where it is known: each has its share.
            seed: Fixes the draw.
        """
        clusters: dict[int, list[ClientId]] = {}
        for client in sorted(clients):
            clusters.setdefault(truth.get(client, 0), []).append(client)
        found: set[ClientId] = set()
        for cluster, members in clusters.items():
            count = 0 if self.name == "none" else round(self.share * len(members))
            drawn = seed.fold("attackers", cluster).sample(len(members), count)
            found.update(members[place] for place in drawn)
        return frozenset(found)


class Attacked(Around):
    """A carrier of whose clients some lie."""

    def __init__(self, carrier: Carrier, attack: Attack, liars: frozenset[ClientId], seed: Seed) -> None:
        """Have some of another carrier's clients lie."""
        self._carrier = carrier
        self._attack = attack
        self._liars = liars
        self._seed = seed

    def on(self, task: Task) -> Attacked:
        """The same liars with another task."""
        return Attacked(self._carrier.on(task), self._attack, self._liars, self._seed)

    def carry(self, order: Order) -> Iterator[Block]:
        """The replies, those of liars changed. Scoring is the simulator's business and stays as it is."""
        models = [name for name, schema in order.work.gives.items() if isinstance(schema, Model) and not schema.stack]
        for block in self._carrier.carry(order):
            places = [place for place, client in enumerate(block.clients) if client in self._liars]
            if block.problem is not None or order.evaluating or not places or not models:
                yield block
                continue
            answers = dict(block.answers)
            for name in models:
                answers[name] = tree.map(np.array, answers[name])
                for place in places:
                    self._spoil(order, block, place, answers[name])
            yield dataclasses.replace(block, answers=answers)

    def _spoil(self, order: Order, block: Block, place: int, bank: Any) -> None:
        """Put a lie in the place of one client's model."""
        client, trained = block.clients[place], tree.row(bank, place)
        start = _sent_model(order, block, place) or tree.map(np.zeros_like, trained)
        s = self._attack.strength
        if self._attack.name == "noise":
            moved = tree.map(lambda after, before: after - before, trained, start)
            size = s * tree.norm(moved) / math.sqrt(tree.size(moved))
            draw = self._seed.fold("noise", order.id, client).generator()
            lie = tree.map(lambda leaf: leaf + size * draw.standard_normal(leaf.shape), trained)
        else:
            s = -s if self._attack.name == "sign" else s
            lie = tree.map(lambda after, before: before + s * (after - before), trained, start)

        def put(into: Any, leaf: Any) -> None:
            into[place] = leaf

        tree.map(put, bank, lie)


def _sent_model(order: Order, block: Block, place: int) -> Params | None:
    """The model that a client was to move from, if it was sent one: `start`, or the one of `heads` that it chose."""
    if "start" in order.shared:
        start: Params = order.shared["start"]
        return start
    if "start" in order.rows:
        bank, rows = order.rows["start"]
        return tree.row(bank, int(rows[order.clients.index(block.clients[place])]))
    if "heads" in order.shared and "choice" in block.answers:
        chosen = tree.row(order.shared["heads"], int(block.answers["choice"][place]))
        return {**order.shared["base"], **chosen}
    return None
