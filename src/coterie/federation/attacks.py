"""Clients that lie: a share of them, drawn once by seed, sends models that are to do harm.

With w the model that such a client was sent and w_k what it trained honestly:

    sign     w - s (w_k - w)          back from where it should go
    scale    w + s (w_k - w)          as if it were many
    noise    w_k + s ‖w_k - w‖/√d · N(0, 1)
    labels   trains on labels C - 1 - y; the run sees to that when it deals out the examples

s is `strength`. Of replies that are no models moved from one that was sent, by the schema of the work (gradients,
updates), w is 0. All else that the client says is honest: its losses, its choices and the running statistics of its
model (`stats`). An attacker may lie about those, too; these do not, since a variance below 0 would give them away.
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
from coterie.federation.messages import ReplyBatch, Request, Transport, TransportWrapper
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import ClientId, Params

AttackName = Literal["none", "sign-flip", "scale", "noise", "label-flip"]


@dataclass(frozen=True)
class Attack:
    """Who does harm, and how.

    Attributes:
        name: What attackers do: send models that went back (sign-flip), too far (scale) or astray (noise), or train on
            labels turned round (label-flip).
        fraction: Of all clients, at least one of them, and of each true cluster where they are known, as near as whole
            clients can be; the same ones in every round.
        strength: How far they go, in lengths of the honest way; nothing for labels.
    """

    name: AttackName = "none"
    fraction: float = 0.2
    strength: float = 10.0

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.name not in get_args(AttackName):
            allowed = ", ".join(map(repr, get_args(AttackName)))
            raise SpecError(f"attack.name must be one of {allowed}, got {self.name!r}")
        if not 0 <= self.fraction <= 1:
            raise SpecError(f"attack.fraction must lie between 0 and 1, got {self.fraction}")
        if self.name != "none" and not self.fraction:
            raise SpecError(
                f"attack.name = {self.name!r} with attack.fraction = 0 is an attack by nobody; use name 'none'"
            )
        if not 0 <= self.strength < math.inf:
            raise SpecError(f"attack.strength must be finite and not negative, got {self.strength}")

    def by(self, clients: Sequence[ClientId], truth: Mapping[ClientId, int], seed: Seed) -> frozenset[ClientId]:
        """Who attacks: the share of all clients, dealt out over the true clusters by largest remainder.

        Args:
            clients: All of them.
            truth: The true cluster of each, where it is known: each has its share.
            seed: Fixes the draw.
        """
        if self.name == "none" or not clients:
            return frozenset()
        clusters: dict[int, list[ClientId]] = {}
        for client in sorted(clients):
            clusters.setdefault(truth.get(client, 0), []).append(client)
        found: set[ClientId] = set()
        for cluster, count in self._counts({key: len(members) for key, members in clusters.items()}, seed).items():
            members = clusters[cluster]
            drawn = seed.fold("attackers", cluster).sample(len(members), count)
            found.update(members[place] for place in drawn)
        return frozenset(found)

    def _counts(self, sizes: Mapping[int, int], seed: Seed) -> dict[int, int]:
        """How many attackers each cluster has; a draw says which of equal remainders comes first."""
        total = max(1, round(self.fraction * sum(sizes.values())))
        counts = {cluster: math.floor(self.fraction * size) for cluster, size in sizes.items()}
        names = sorted(sizes)
        shuffled = [names[place] for place in seed.fold("remainders").permutation(len(names))]
        # Rounded, so that equal shares have equal remainders: 0.7·10 is 7 and 0.07·100 a little more.
        by_remainder = sorted(shuffled, key=lambda cluster: round(counts[cluster] - self.fraction * sizes[cluster], 9))
        for cluster in by_remainder[: total - sum(counts.values())]:
            counts[cluster] += 1
        return counts


class Attacked(TransportWrapper):
    """A carrier of whose clients some lie."""

    def __init__(self, transport: Transport, attack: Attack, liars: frozenset[ClientId], seed: Seed) -> None:
        """Have some of another carrier's clients lie."""
        self._transport = transport
        self._attack = attack
        self._liars = liars
        self._seed = seed

    def on(self, task: Task) -> Attacked:
        """The same liars with another task."""
        return Attacked(self._transport.on(task), self._attack, self._liars, self._seed)

    def carry(self, order: Request) -> Iterator[ReplyBatch]:
        """The replies, those of liars changed. Scoring is the simulator's business and stays as it is."""
        models = {
            name: schema for name, schema in order.work.gives.items() if isinstance(schema, Model) and not schema.stack
        }
        for block in self._transport.carry(order):
            places = [place for place, client in enumerate(block.clients) if client in self._liars]
            if block.problem is not None or order.evaluating or not places or not models:
                yield block
                continue
            answers = dict(block.answers)
            for name, schema in models.items():
                answers[name] = tree.map(np.array, answers[name])
                for place in places:
                    start = _sent_model(order, block, place) if schema.moved else None
                    self._spoil(order, block.clients[place], place, start, trainable(answers[name]))
            yield dataclasses.replace(block, answers=answers)

    def _spoil(self, order: Request, client: ClientId, place: int, start: Params | None, bank: Any) -> None:
        """Put a lie in the place of one client's model."""
        trained = tree.row(bank, place)
        start = tree.map(np.zeros_like, trained) if start is None else trainable(start)
        s = self._attack.strength
        if self._attack.name == "noise":
            moved = tree.map(lambda after, before: after - before, trained, start)
            size = s * tree.norm(moved) / math.sqrt(tree.size(moved))
            draw = self._seed.fold("noise", order.id, client).generator()
            lie = tree.map(lambda leaf: leaf + size * draw.standard_normal(leaf.shape), trained)
        else:
            s = -s if self._attack.name == "sign-flip" else s
            lie = tree.map(lambda after, before: before + s * (after - before), trained, start)

        def put(into: Any, leaf: Any) -> None:
            into[place] = leaf

        tree.map(put, bank, lie)


def _sent_model(order: Request, block: ReplyBatch, place: int) -> Params:
    """The model that a client was to move from: `start`, or the one of `heads` that it chose; works are checked."""

    def sent(name: str) -> Any:
        if name in order.shared:
            return order.shared[name]
        bank, rows = order.rows[name]
        return tree.row(bank, int(rows[order.clients.index(block.clients[place])]))

    if "start" in order.work.takes:
        start: Params = sent("start")
        return start
    return {**sent("base"), **tree.row(sent("heads"), int(block.answers["choice"][place]))}
