"""The replies of one ask while they come in: checked one by one, kept or refused, added up."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from coterie import tree
from coterie.aggregation import Aggregation
from coterie.clients import schema as schemas
from coterie.clients.schema import Model, Ragged, Schema, Settings, Values
from coterie.federation.messages import ReplyBatch, Request, pick
from coterie.federation.protocol import Mean
from coterie.federation.reduce import Reduction, Selection
from coterie.federation.replies import Replies
from coterie.models import Task
from coterie.types import Array, ClientId, Params

#: Why a reply is refused that holds NaN or infinite numbers.
NOT_FINITE = "not finite"


#: Nobody is taken to be bad.
PLAIN = Aggregation()


class ReplyCollector:
    """The replies of one ask while they come in."""

    def __init__(
        self,
        order: Request,
        task: Task,
        template: Params,
        how: Mean | None,
        dims: Mapping[str, int],
        aggregation: Aggregation = PLAIN,
    ) -> None:
        """Nobody has answered yet.

        Args:
            order: What was asked.
            task: What the clients learn.
            template: A model of that task.
            how: How replies are added up; None to keep each of them.
            dims: Named dimensions of what was sent.
            aggregation: By which rule they are averaged.
        """
        self.order = order
        self.lost: dict[ClientId, str] = dict.fromkeys(order.clients, "no reply")
        self._task = task
        self._template = template
        self._how = how
        if how is None:
            self._reduction = None
        else:
            self._reduction = (
                Reduction(how, template) if aggregation.rule == "mean" else Selection(how, template, aggregation)
            )
        self._blocks: list[ReplyBatch] = []
        self._seen: set[ClientId] = set()
        self._asked = set(order.clients)
        self._dims = dict(dims)
        self._holds = False

    @property
    def clients(self) -> tuple[ClientId, ...]:
        """Who gave a good answer so far."""
        return tuple(client for block in self._blocks for client in block.clients)

    def hold(self) -> None:
        """Some clients answer after the others: models must wait to be added up in the order of client ids."""
        self._holds = self._how is not None

    def take(self, block: ReplyBatch) -> list[tuple[ClientId, str]]:
        """Keep the good replies of a block; give the others with the reason."""
        bad: dict[int, str] = {}
        dims = {**self._dims, "replies": len(block.clients)}
        common = block.problem or ("late" if block.late else None) or self._misfit(block, dims)
        here: set[ClientId] = set()
        for place, client in enumerate(block.clients):
            if block.order != self.order.id:
                bad[place] = "of another ask"
            elif client not in self._asked:
                bad[place] = "not asked"
            elif client in self._seen or client in here:
                bad[place] = "repeated"
            elif common:
                bad[place] = common
            here.add(client)
        if not common:
            for place in np.flatnonzero(~_finite_rows(block)).tolist():
                bad.setdefault(place, NOT_FINITE)
            for place in np.flatnonzero(~self._grouped(block)).tolist():
                bad.setdefault(place, "of no group")
        for place, reason in bad.items():
            if block.clients[place] in self._asked and reason not in ("repeated", "of another ask"):
                self.lost[block.clients[place]] = reason
        good = [place for place in range(len(block.clients)) if place not in bad]
        if good:
            self._dims = dims  # what the work left open holds for the replies that follow
            self._keep(block if not bad else block.rows(good))
        return [(block.clients[place], reason) for place, reason in sorted(bad.items())]

    def _grouped(self, block: ReplyBatch) -> Array:
        """Which replies name a group that exists, where they do."""
        if self._how is None or not isinstance(self._how.by, str):
            return np.ones(len(block.clients), bool)
        groups = np.asarray(block.answers[self._how.by])
        return (groups >= 0) & (groups < self._how.groups)

    def _misfit(self, block: ReplyBatch, dims: dict[str, int]) -> str | None:
        """Why the answers are not what the work declares, or None; `dims` collects the named dimensions."""
        gives, many = self.order.work.gives, len(block.clients)
        if set(block.answers) != set(gives):
            return f"gives {sorted(block.answers)}, not {sorted(gives)}"
        samples = np.asarray(block.samples)
        if samples.shape != (many,) or samples.dtype.kind not in "iu" or (many and samples.min() < 0):
            return "does not say on how many examples it worked"
        for name, schema in gives.items():
            value = block.answers[name]
            if isinstance(schema, Ragged):
                if not isinstance(value, list) or len(value) != many:
                    return f"{name} is not one list of arrays"
                found = (schemas.problem(schema, items, self._task, self._template, dict(dims)) for items in value)
                fault = next((text for text in found if text), None)
            elif isinstance(schema, Model):
                stacked = dataclasses.replace(schema, stack=("replies", *schema.stack))
                fault = schemas.problem(stacked, value, self._task, self._template, dims)
            else:
                assert not isinstance(schema, Settings)
                stacked_values = dataclasses.replace(schema, shape=("replies", *schema.shape))
                fault = schemas.problem(stacked_values, value, self._task, self._template, dims)
            if fault:
                return f"{name} {fault}"
        return None

    def _keep(self, block: ReplyBatch) -> None:
        for client in block.clients:
            self._seen.add(client)
            del self.lost[client]
        if self._reduction is not None and self._how is not None and not self._holds:
            groups = self._reduction.groups_of(block.clients, block.answers)
            self._reduction.add(block.answers[self._how.of], groups, block.samples)
            rest = {name: value for name, value in block.answers.items() if name != self._how.of}
            block = dataclasses.replace(block, answers=rest)
        self._blocks.append(block)

    def _none_of(self, schema: Schema) -> Any:
        """The answers of nobody."""
        if isinstance(schema, Model):
            return tree.map(lambda leaf: np.zeros((0, *leaf.shape), leaf.dtype), self._template)
        return np.zeros(0, schema.dtype) if isinstance(schema, Values) else []

    def replies(self) -> Replies:
        """What came, in the order of client ids."""
        blocks = self._blocks
        clients = self.clients
        samples = np.concatenate([np.zeros(0, np.int64), *(block.samples for block in blocks)])
        reduced = None if self._how is None or self._holds else self._how.of
        names = [name for name in self.order.work.gives if name != reduced]
        answers = {name: _join([block.answers[name] for block in blocks]) for name in names} if blocks else {}
        if not blocks:
            answers = {name: self._none_of(self.order.work.gives[name]) for name in names}
        order = sorted(range(len(clients)), key=clients.__getitem__)
        if order != list(range(len(clients))):
            assert self._reduction is None or self._holds, "a carrier must give replies in the order of client ids"
            clients = tuple(clients[place] for place in order)
            samples = samples[order]
            answers = {name: pick(value, order) for name, value in answers.items()}
        if self._holds and self._reduction is not None and self._how is not None:
            bank = answers.pop(self._how.of)
            if clients:
                self._reduction.add(bank, self._reduction.groups_of(clients, answers), samples)
        mean, weight, spread = (None, None, None) if self._reduction is None else self._reduction.result()
        return Replies(clients, samples, answers, mean, weight, spread, dict(self.lost))


def _finite_rows(block: ReplyBatch) -> Array:
    """Which replies hold finite numbers only; cheap where all of them do."""
    fine = np.ones(len(block.clients), bool)
    for value in block.answers.values():
        if isinstance(value, list):
            fine &= np.array([all(tree.finite(item) for item in items) for items in value], bool)
            continue
        for leaf in tree.leaves(value):
            if leaf.dtype.kind != "f":
                continue
            with np.errstate(over="ignore"):  # large numbers are finite; then each of them is looked at
                square = np.dot(leaf.reshape(-1), leaf.reshape(-1))
            if not np.isfinite(square):
                fine &= np.isfinite(leaf).reshape(len(leaf), -1).all(axis=1)
    return fine


def _join(values: list[Any]) -> Any:
    return [item for items in values for item in items] if isinstance(values[0], list) else tree.concatenate(values)


def some(clients: Sequence[str]) -> str:
    """The first few of many names."""
    return ", ".join(clients[:5]) + (f" and {len(clients) - 5} more" if len(clients) > 5 else "")
