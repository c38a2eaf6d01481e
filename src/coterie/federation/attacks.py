"""Simulated attacks: a fraction of the clients, chosen once by seed, sends harmful models.

Let w be the model that an attacker was sent, and w_k the model that it trained. It replies with:

    sign-flip    w - s (w_k - w)          the update reversed
    scale        w + s (w_k - w)          the update enlarged
    noise        w_k + s ‖w_k - w‖/√d · N(0, 1)
    label-flip   trains on labels C - 1 - y; `runs.build` changes the labels before the run

s is `strength`. For replies that are gradients or updates instead of a trained model (as declared by the schema of the
work), w is 0. Everything else that an attacker sends is honest: losses, choices, and the running statistics of its
model (`stats`), because a negative variance would reveal the attack.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, cast

import numpy as np

from coterie import tree
from coterie.bounds import Bound, check
from coterie.clients.schema import Model
from coterie.errors import SpecError
from coterie.federation.messages import ReplyBatch, Request
from coterie.federation.transport import Transport, TransportWrapper
from coterie.models import Task, trainable
from coterie.seeds import Seed
from coterie.types import Array, Bank, ClientId, Params

AttackName = Literal["none", "sign-flip", "scale", "noise", "label-flip"]


@dataclass(frozen=True)
class Attack:
    """Settings of the `attack` section.

    Attributes:
        name: Attack: reverse the update (sign-flip), enlarge it (scale), add noise to the model (noise), or train on
            flipped labels (label-flip).
        fraction: Fraction of malicious clients, at least one client. If the true clusters are known, the
            attackers are spread evenly over them. The same clients attack in every round.
        strength: Size of the attack relative to the honest update; not used by label-flip.
    """

    name: AttackName = "none"
    fraction: Annotated[float, Bound(at_least=0, at_most=1)] = 0.2
    strength: Annotated[float, Bound(at_least=0)] = 10.0

    def __post_init__(self) -> None:
        """Validate the settings."""
        check(self, "attack")
        if self.name != "none" and not self.fraction:
            raise SpecError(
                f"attack.name = {self.name!r} needs attack.fraction above 0, got 0; for no attack use name 'none'"
            )

    def attackers(self, clients: Sequence[ClientId], truth: Mapping[ClientId, int], seed: Seed) -> frozenset[ClientId]:
        """Choose the malicious clients: the fraction of all clients, divided among the true clusters.

        Args:
            clients: All clients.
            truth: Client → true cluster; empty if true clusters are not known.
            seed: Random seed.
        """
        if self.name == "none" or not clients:
            return frozenset()
        clusters: dict[int, list[ClientId]] = {}
        for client in sorted(clients):
            clusters.setdefault(truth.get(client, 0), []).append(client)
        chosen: set[ClientId] = set()
        for cluster, count in self._counts({key: len(members) for key, members in clusters.items()}, seed).items():
            members = clusters[cluster]
            drawn = seed.fold("attackers", cluster).sample(len(members), count)
            chosen.update(members[place] for place in drawn)
        return frozenset(chosen)

    def _counts(self, sizes: Mapping[int, int], seed: Seed) -> dict[int, int]:
        """Number of attackers in each cluster, by largest remainder; equal remainders are ordered at random."""
        total = max(1, round(self.fraction * sum(sizes.values())))
        counts = {cluster: math.floor(self.fraction * size) for cluster, size in sizes.items()}
        names = sorted(sizes)
        shuffled = [names[place] for place in seed.fold("remainders").permutation(len(names))]
        # Rounded, so that equal shares have equal remainders: 0.7·10 is 7, but 0.07·100 is slightly more than 7.
        by_remainder = sorted(shuffled, key=lambda cluster: round(counts[cluster] - self.fraction * sizes[cluster], 9))
        for cluster in by_remainder[: total - sum(counts.values())]:
            counts[cluster] += 1
        return counts


class AttackTransport(TransportWrapper):
    """A transport that changes the replies of malicious clients."""

    def __init__(self, transport: Transport, attack: Attack, attackers: frozenset[ClientId], seed: Seed) -> None:
        """Make some clients of a transport malicious."""
        super().__init__(transport)
        self._attack = attack
        self._attackers = attackers
        self._seed = seed

    def on(self, task: Task) -> AttackTransport:
        """Return a transport with the same attackers and another task."""
        return AttackTransport(self._transport.on(task), self._attack, self._attackers, self._seed)

    def send(self, request: Request) -> Iterator[ReplyBatch]:
        """Send the request and change the models in the replies of attackers. Evaluation is not attacked."""
        gives = request.work.gives
        models = {name: schema for name, schema in gives.items() if isinstance(schema, Model) and not schema.stack}
        for batch in self._transport.send(request):
            places = [place for place, client in enumerate(batch.clients) if client in self._attackers]
            if batch.problem is not None or request.evaluating or not places or not models:
                yield batch
                continue
            answers = dict(batch.answers)
            for name, schema in models.items():
                bank = cast("Bank", tree.map(np.array, answers[name]))
                for place in places:
                    start = _sent_model(request, batch, place) if schema.moved else None
                    self._attack_row(request, batch.clients[place], place, start, trainable(bank))
                answers[name] = bank
            yield dataclasses.replace(batch, answers=answers)

    def _attack_row(self, request: Request, client: ClientId, place: int, start: Params | None, bank: Bank) -> None:
        """Replace the model of one attacker in the bank."""
        trained = tree.row(bank, place)
        start = tree.map(np.zeros_like, trained) if start is None else trainable(start)
        s = self._attack.strength
        if self._attack.name == "noise":
            update = tree.map(lambda after, before: after - before, trained, start)
            size = s * tree.norm(update) / math.sqrt(tree.size(update))
            draw = self._seed.fold("noise", request.id, client).generator()
            attacked = tree.map(lambda leaf: leaf + size * draw.standard_normal(leaf.shape), trained)
        else:
            s = -s if self._attack.name == "sign-flip" else s
            attacked = tree.map(lambda after, before: before + s * (after - before), trained, start)

        def put(into: Array, leaf: Array) -> None:
            into[place] = leaf

        tree.map(put, bank, attacked)


def _sent_model(request: Request, batch: ReplyBatch, place: int) -> Params:
    """The model that a client was sent to train: `start`, or `base` with the row of `heads` that it chose."""
    position = request.clients.index(batch.clients[place])

    def sent(name: str) -> Params:
        if name in request.shared:
            return cast("Params", request.shared[name])
        bank, rows = request.per_client[name]
        return cast("Params", tree.row(bank, int(rows[position])))

    if "start" in request.work.takes:
        return sent("start")
    choice = cast("Array", batch.answers["choice"])
    return {**sent("base"), **tree.row(sent("heads"), int(choice[place]))}
