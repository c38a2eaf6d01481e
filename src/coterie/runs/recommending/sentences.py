"""A recommendation in sentences: what was seen of the data, and the reasons for the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coterie.runs.recommending.panel import REFERENCE
from coterie.runs.recommending.recommendation import MethodResult
from coterie.runs.recommending.rule import Answer, Decision
from coterie.runs.record import JsonObject

#: Label skew from which it is called so, and from which it is called strong.
_SKEWED, _STRONGLY_SKEWED = 0.05, 0.3

#: Adjusted Rand index from which clusters count as the same, and below which they have little in common.
_SAME, _UNLIKE = 0.9, 0.5

#: Times the bytes of another method from which it is called cheaper.
_MUCH = 1.5

HEADLINES: dict[Answer, str] = {
    "one model": "One model for all clients is enough: use {}.",
    "local": "Train locally, without a federation: use {}.",
    "clusters": "Train one model per cluster: use {}.",
    "adapted": "Let every client adapt a shared model: use {}.",
}


def score_text(metric: str, value: float) -> str:
    """A score as people write it."""
    return f"{100 * value:.1f} %" if metric == "accuracy" else f"{value:.4g}"


def difference_text(metric: str, value: float) -> str:
    """A difference of scores, without its sign."""
    return f"{100 * abs(value):.1f} percentage points" if metric == "accuracy" else f"{abs(value):.4g}"


def about_data(facts: JsonObject) -> list[str]:
    """The data in sentences."""
    sizes, skew = facts["examples_per_client"], facts["label_skew"]
    used = (
        "" if facts["clients_used"] == facts["clients"] else f", of which {facts['clients_used']} drawn at random ran"
    )
    each = (
        f"{sizes['min']:,} training examples each"
        if sizes["min"] == sizes["max"]
        else f"{sizes['min']:,} to {sizes['max']:,} training examples each, median {sizes['median']:,.0f}"
    )
    lines = [f"{facts['clients']:,} client{'' if facts['clients'] == 1 else 's'}{used}; {each}."]
    if skew is None:
        return [*lines, "The labels are numbers (regression)."]
    strength = (
        "no label skew beyond chance"
        if skew["skew"] < _SKEWED
        else "label skew"
        if skew["skew"] < _STRONGLY_SKEWED
        else "strong label skew"
    )
    lines.append(
        f"{facts['classes']} classes, of which a client has {skew['classes_per_client']:.0f} (median): {strength}. "
        f"A client's label distribution differs from that of all clients by {skew['distance']:.2f} on average (total "
        f"variation distance, 0 to 1); if the same labels are distributed at random, by {skew['by_chance']:.2f}."
    )
    return lines


def about_clusters(facts: JsonObject) -> list[str]:
    """The clusters that methods found, in sentences."""
    found: Mapping[str, Sequence[int]] = facts["found"]
    if not found:
        return []
    lines = ["Clusters found: " + ", ".join(f"{name} {_counts(counts)}" for name, counts in found.items()) + "."]
    several = [name for name, counts in found.items() if max(counts) > 1]
    if not several:
        return lines
    agreement = facts["agreement"]
    if agreement is not None:
        how = (
            "agree on who belongs together"
            if agreement >= _SAME
            else "agree in part on who belongs together"
            if agreement >= _UNLIKE
            else "do not agree on who belongs together"
        )
        lines.append(f"The methods that found several clusters {how} (mean adjusted Rand index {agreement:.2f}).")
    unstable = [name for name in several if (index := facts["stability"][name]) is not None and index < _SAME]
    if unstable:
        shown = ", ".join(f"{name} {facts['stability'][name]:.2f}" for name in unstable)
        lines.append(f"Other clusters with other seeds (mean adjusted Rand index between seeds): {shown}.")
    return lines


def reasons(
    decision: Decision, results: Mapping[str, MethodResult], metric: str, margin: float, seeds: int
) -> list[str]:
    """Why this method, in sentences.

    Args:
        decision: The decision.
        results: Method → its result.
        metric: The primary metric.
        margin: Least difference that counts.
        seeds: Number of seeds.
    """
    chosen, one = results[decision.method], results[REFERENCE]
    lines = [f"Score on validation examples: {score_text(metric, chosen.score)} ({metric})."]
    if not decision.better:
        lines[0] = f"One model for all clients ({REFERENCE}) scores {score_text(metric, one.score)} ({metric})."
        lines += _why_not(results, metric, margin)
    else:
        lines[0] = (
            f"{chosen.method} scores {score_text(metric, chosen.score)} ({metric}), one model for all clients "
            f"({REFERENCE}) {score_text(metric, one.score)}: {difference_text(metric, chosen.difference or 0)} better, "
            f"with a standard error of {difference_text(metric, chosen.error or 0)}."
        )
        lines += _others(decision, results, metric)
        above = [each for each in results.values() if (each.difference or 0) > (chosen.difference or 0)]
        lines += _not_counted(above, metric)
    if seeds < 2:
        lines.append("There was time for one seed only: the error does not include the chance of a run.")
    return lines


def _why_not(results: Mapping[str, MethodResult], metric: str, margin: float) -> list[str]:
    """The methods that were not counted, and why the score of the closest other one is not enough."""
    lines = _not_counted(list(results.values()), metric)
    gains = {
        each.method: each.difference
        for each in results.values()
        if each.difference is not None and not _one_cluster(each)
    }
    if not gains:
        return lines
    best = results[max(gains, key=gains.__getitem__)]
    gain = gains[best.method]
    name = best.method if len(gains) == 1 else f"The best of the other methods, {best.method},"
    score = score_text(metric, best.score)
    if gain <= 0:
        return [*lines, f"{name} scores {score} and is not better."]
    why = (
        f"less than the margin of {difference_text(metric, margin)}"
        if gain < margin
        else f"which may be chance: {_error_text(metric, best.error)}"
    )
    return [*lines, f"{name} scores {score}: {difference_text(metric, gain)} better, {why}."]


def _not_counted(methods: Sequence[MethodResult], metric: str) -> list[str]:
    """Those that ended with one cluster: their scores are in the table, but the rule does not count them."""
    found = [each for each in methods if _one_cluster(each)]
    if not found:
        return []
    names = [f"{each.method} ({score_text(metric, each.score)})" for each in found]
    listed = " and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part)
    always = all(count <= 1 for each in found for count in each.clusters or ())
    seeds = "" if always else " for at least half of the seeds"
    they = "it is" if len(names) == 1 else "they are"
    return [
        f"{listed} ended with one cluster{seeds}, that is, one model for all clients; {they} not counted as better."
    ]


def _error_text(metric: str, error: float | None) -> str:
    """How uncertain a difference is."""
    if error is None:
        return "only one client has scores"
    return f"the standard error is {difference_text(metric, error)}"


def _others(decision: Decision, results: Mapping[str, MethodResult], metric: str) -> list[str]:
    """Why not another method that is better than one model, too."""
    chosen = results[decision.method]
    equal = [results[name] for name in decision.equal if name != chosen.method]
    worse = [results[name] for name in decision.better if name not in decision.equal]
    lines = []
    if equal:
        listed = ", ".join(f"{each.method} ({score_text(metric, each.score)}{_cost(each, chosen)})" for each in equal)
        because = {
            "one model": "one model is simpler",
            "local": "local training sends no model",
            "clusters": "it sends the fewest bytes",
            "adapted": "it sends the fewest bytes",
        }[chosen.answer]
        lines.append(f"About as good: {listed}; {chosen.method} is preferred because {because}.")
    if worse:
        listed = ", ".join(f"{each.method} ({score_text(metric, each.score)})" for each in worse)
        lines.append(f"Also better than one model, but not as good: {listed}.")
    return lines


def _cost(one: MethodResult, chosen: MethodResult) -> str:
    ratio = one.sent_bytes / chosen.sent_bytes if chosen.sent_bytes else 0.0
    return f", {ratio:.1f} times the bytes" if ratio >= _MUCH and chosen.answer != "local" else ""


def _one_cluster(result: MethodResult) -> bool:
    """Whether the method looked for clusters, and ended with one for at least half of the seeds."""
    counts = result.clusters
    return counts is not None and 2 * sum(count > 1 for count in counts) <= len(counts)


def _counts(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"
