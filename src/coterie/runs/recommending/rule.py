"""The rule that chooses a method from the scores of clients.

    d_si   difference of a method to one model for all clients: seed s, client i, on the same validation examples
    d      its mean, weighted by the numbers of validation examples w_si
    e²     = n/(n-1) Σ_i (Σ_s w_si (d_si - d))² / W²  +  S/(S-1) Σ_s (Σ_i w_si (d_si - d))² / W²,   W = Σ_si w_si

e is the standard error of d: the first term is its spread over the n clients, the second over the S seeds, each of
which has its own validation examples, cohorts and initial models. The two overlap, so that e is rather too large.

1. A method is better than one model if d is at least the margin, and more than t·e. t is the quantile of Student's
   distribution with n - 1 degrees of freedom at the level 0.05, divided by the number of compared methods.
2. Without such a method, one model is enough. A method that ended with one cluster has trained one model; it may have
   trained more of it, but says nothing for clusters, and is not compared.
3. Otherwise, of those methods whose score is within the margin of the best: one model by another method, then local
   training, then the method with the fewest bytes.

The margin is one percentage point, and for losses 2 % of the score that is compared with: that of one model in 1., that
of the best method, which may be a thousandth of it, in 3.

The reasons for this rule are in docs/decisions/0090-the-rule-of-recommend.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from coterie.types import Array

#: What is recommended: one model for all clients, a model of each client's own data, one model per cluster, or a model
#: that each client adapts.
Answer = Literal["one model", "local", "clusters", "adapted"]

#: Probability with which any method is called better on clients for which one model is enough.
LEVEL = 0.05

#: Least difference that counts: in scores between 0 and 1, and as a fraction of the score compared with for others.
MARGIN, RELATIVE_MARGIN = 0.01, 0.02

#: Differences of scores are not exact in floating point.
_ROUNDING = 1e-9

#: Metrics to which MARGIN applies.
_UP_TO_ONE = ("accuracy", "balanced_accuracy", "macro_f1", "auroc")

#: Which answer is preferred among equally good ones.
_PREFERENCE: dict[Answer, int] = {"one model": 0, "local": 1, "clusters": 2, "adapted": 2}


@dataclass(frozen=True, eq=False)
class ClientScores:
    """The scores of a method on the validation examples of each client.

    Attributes:
        values: (seeds, clients) scores; NaN for a client without validation examples.
        weights: (seeds, clients) number of validation examples, or the sum of their weights.
    """

    values: Array
    weights: Array

    @property
    def mean(self) -> float:
        """Score over all clients and seeds, weighted by examples."""
        return float(np.sum(self._known_weights * np.nan_to_num(self.values)) / self._known_weights.sum())

    @property
    def by_seed(self) -> list[float]:
        """Score of each seed."""
        sums = np.sum(self._known_weights * np.nan_to_num(self.values), axis=1)
        return [float(value) for value in sums / self._known_weights.sum(axis=1)]

    @property
    def by_client(self) -> Array:
        """(clients,) score of each client over all seeds; NaN for a client without validation examples."""
        weights = self._known_weights.sum(axis=0)
        sums = np.sum(self._known_weights * np.nan_to_num(self.values), axis=0)
        means: Array = np.divide(sums, weights, out=np.full(len(weights), np.nan), where=weights > 0)
        return means

    @property
    def _known_weights(self) -> Array:
        return np.where(np.isnan(self.values), 0.0, self.weights)


@dataclass(frozen=True)
class Difference:
    """How much better a method is than one model for all clients.

    Attributes:
        mean: Mean over clients and seeds; positive if the method is better, also for losses.
        error: Standard error of the mean; infinite with a single client.
        clients: Number of clients with validation examples.
    """

    mean: float
    error: float
    clients: int

    def beyond_noise(self, comparisons: int) -> bool:
        """Whether the difference is larger than chance explains, if so many methods are compared."""
        if self.clients < 2 or not math.isfinite(self.error):
            return False
        from scipy import stats

        return self.mean > float(stats.t.ppf(1 - LEVEL / max(1, comparisons), self.clients - 1)) * self.error


@dataclass(frozen=True)
class Candidate:
    """A method as the rule sees it.

    Attributes:
        answer: What it stands for.
        score: Its score.
        difference: Its difference to the reference; None for the reference.
        sent_bytes: Bytes sent down and up in a run.
        one_cluster: Whether it looked for clusters and ended with one.
    """

    answer: Answer
    score: float
    difference: Difference | None
    sent_bytes: float
    one_cluster: bool = False


@dataclass(frozen=True)
class Decision:
    """The chosen method.

    Attributes:
        method: Its name.
        answer: What it stands for.
        better: The methods that are better than one model, best first.
        equal: Those of them whose score is within the margin of the best, in the order of preference.
    """

    method: str
    answer: Answer
    better: tuple[str, ...]
    equal: tuple[str, ...]


def margin_of(metric: str, reference: float) -> float:
    """The least difference that counts.

    Args:
        metric: The primary metric.
        reference: The score that is compared with.
    """
    return MARGIN if metric in _UP_TO_ONE else RELATIVE_MARGIN * abs(reference)


def difference(method: ClientScores, reference: ClientScores, *, higher_is_better: bool) -> Difference:
    """Compare a method with the reference on the seeds that both have, paired by seed and client.

    Args:
        method: Scores of the method.
        reference: Scores of the reference.
        higher_is_better: Whether a higher score is better.
    """
    seeds = min(len(method.values), len(reference.values))
    sign = 1.0 if higher_is_better else -1.0
    found = sign * (method.values[:seeds] - reference.values[:seeds])
    known = np.isfinite(found) & (reference.weights[:seeds] > 0)
    weights = np.where(known, reference.weights[:seeds], 0.0).astype(np.float64)
    values, total = np.where(known, found, 0.0), float(weights.sum())
    clients = int((weights.sum(axis=0) > 0).sum())
    if not total:
        return Difference(math.nan, math.inf, 0)
    mean = float((weights * values).sum() / total)
    rest = weights * (values - mean)
    error = math.sqrt(_variance(rest.sum(axis=0), clients) + _variance(rest.sum(axis=1), seeds)) / total
    return Difference(mean, error if clients > 1 else math.inf, clients)


def _variance(rests: Array, count: int) -> float:
    """Sum of squares of the rests of clients or seeds, corrected for their number; 0 for one of them."""
    return 0.0 if count < 2 else float(count / (count - 1) * np.square(rests).sum())


def decide(candidates: Mapping[str, Candidate], reference: str, metric: str, *, higher_is_better: bool) -> Decision:
    """Choose a method.

    Args:
        candidates: Method → what is known about it.
        reference: The method that trains one model for all clients.
        metric: The primary metric.
        higher_is_better: Whether a higher score is better.
    """
    sign = -1.0 if higher_is_better else 1.0
    margin = margin_of(metric, candidates[reference].score)
    compared = {
        name: each.difference
        for name, each in candidates.items()
        if each.difference is not None and not each.one_cluster
    }
    better = [
        name for name, each in compared.items() if each.mean >= margin - _ROUNDING and each.beyond_noise(len(compared))
    ]
    if not better:
        return Decision(reference, "one model", (), (reference,))
    better.sort(key=lambda name: (sign * candidates[name].score, name))
    best = candidates[better[0]].score
    near = margin_of(metric, best)
    equal = [name for name in better if abs(candidates[name].score - best) <= near + _ROUNDING]
    equal.sort(key=lambda name: (_PREFERENCE[candidates[name].answer], candidates[name].sent_bytes, name))
    return Decision(equal[0], candidates[equal[0]].answer, tuple(better), tuple(equal))
