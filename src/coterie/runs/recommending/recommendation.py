"""`Recommendation`: the method to use, why, and what the compared methods scored, cost, need and reveal."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from coterie.notebooks import html_table
from coterie.runs.recommending.rule import Answer
from coterie.runs.record import JsonObject
from coterie.runs.spec import Spec


@dataclass(frozen=True)
class MethodResult:
    """A method in the comparison of a recommendation.

    Attributes:
        method: Its name.
        answer: What it stands for: `one model`, `local`, `clusters`, or `adapted` (clients adapt a shared model).
        score: Score on validation examples over all clients and seeds.
        seed_deviation: Standard deviation of the score over seeds; None with one seed.
        client_deviation: Standard deviation of the scores of clients, each over all seeds; None with one client.
        difference: How much better it is than one model; positive is better. None for the reference.
        error: Standard error of the difference, over clients and seeds; None if only one client has scores.
        better: Whether it is better than one model by more than the margin and chance.
        clusters: Number of clusters that clients were served, by seed; None for methods without clusters.
        sent_bytes: Bytes that a run sends down and up, without evaluation; mean over seeds.
        seconds: Duration of a run; mean over seeds.
        settings: Settings that differ from the defaults.
        needs: What it needs, in phrases.
        reveals: What the server sees of individual clients, in sentences.
        sees_individuals: When the server sees models of individual clients, or arrays computed from their examples.
    """

    method: str
    answer: Answer
    score: float
    seed_deviation: float | None
    client_deviation: float | None
    difference: float | None
    error: float | None
    better: bool
    clusters: tuple[int, ...] | None
    sent_bytes: float
    seconds: float
    settings: Mapping[str, object]
    needs: tuple[str, ...]
    reveals: tuple[str, ...]
    sees_individuals: str


@dataclass(frozen=True, repr=False)
class Recommendation:
    """The result of `recommend`.

    Attributes:
        method: The method to use.
        answer: What it stands for: `one model`, `local`, `clusters`, or `adapted` (clients adapt a shared model).
        spec: The spec to run next, with this method.
        reasons: Why, in sentences.
        ranking: The compared methods, the best score first.
        left_out: Method → why it could not be compared.
        metric: Primary metric, by which methods are compared.
        higher_is_better: Whether a higher score is better.
        margin: Least difference that counts.
        seeds: Seeds of the runs.
        rounds: Number of rounds of a run.
        data: What was seen of the data: `clients`, `clients_used`, `examples_per_client`, `classes`, `label_skew`.
        clusters: The clusters that methods found (`found`), and how well methods (`agreement`) and seeds (`stability`)
            agree on them, as adjusted Rand indices.
    """

    method: str
    answer: Answer
    spec: Spec
    reasons: tuple[str, ...]
    ranking: tuple[MethodResult, ...]
    left_out: Mapping[str, str]
    metric: str
    higher_is_better: bool
    margin: float
    seeds: tuple[int, ...]
    rounds: int
    data: JsonObject
    clusters: JsonObject

    @property
    def chosen(self) -> MethodResult:
        """The recommended method in the ranking."""
        return next(each for each in self.ranking if each.method == self.method)

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `coterie recommend --json` prints."""
        plain = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        ranking = [dataclasses.asdict(each) for each in self.ranking]
        return {**plain, "spec": self.spec.to_dict(), "ranking": ranking, "left_out": dict(self.left_out)}

    def __repr__(self) -> str:
        """Short: the method, what it stands for, and its score."""
        return f"Recommendation({self.method}: {self.answer}, {self.metric} {self.chosen.score:.4g})"

    def _repr_html_(self) -> str:
        """The ranking, for notebooks."""
        columns = ["method", "score", "difference", "error", "better", "clusters", "sent_bytes", "seconds"]
        return html_table(columns, [[getattr(each, column) for column in columns] for each in self.ranking])
