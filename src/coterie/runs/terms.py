"""`Terms`: what a server asks of a client, and what the client would reveal; its owner agrees to it or not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from coterie import methods
from coterie.errors import SpecError, message_text
from coterie.runs.method_card import Card, measure_card, shipped_card
from coterie.runs.spec import method_options

#: Largest number in the settings of a method that a server may ask for.
_LARGEST = 100_000

#: The works with which a run evaluates the models that clients are served.
_EVALUATION = ("score", "weighted_score")

#: Those of a run with more metrics.
_METRICS = ("classification_scores", "regression_scores", "client_auroc")


@dataclass(frozen=True)
class Terms:
    """What a server asks of a client; its owner agrees to it or not.

    Attributes:
        data: Name of the data, as the server calls them.
        method: Name of the method.
        options: Settings of the method.
        model: Name of the model.
        rounds: Number of rounds.
        privacy: Settings of [privacy].
        moments: Whether the sums of the inputs are asked for, for their normalization.
        metrics: Metrics that evaluations compute in addition to accuracy and loss.
        validate: Whether evaluations also use validation examples.
    """

    data: str
    method: str
    options: Mapping[str, Any]
    model: str
    rounds: int
    privacy: Mapping[str, Any]
    moments: bool
    metrics: tuple[str, ...] = ()
    validate: bool = False

    @classmethod
    def of(cls, greeting: Mapping[str, Any], *, table: bool = False) -> Terms:
        """The terms in a greeting.

        Args:
            greeting: What the server says about its run.
            table: Whether the client's data are a table.

        Raises:
            SpecError: If the greeting is malformed, or names a method that this client does not have.
        """
        try:
            spec = greeting["spec"]
            options = {str(key): value for key, value in spec["method"].items() if key != "name"}
            name, model = str(spec["method"]["name"]), message_text(str(spec["model"]["name"])[:200])
            if any(isinstance(value, int | float) and abs(value) > _LARGEST for value in options.values()):
                raise ValueError("a setting is too large")  # the card is measured with it, on this machine
            terms = cls(
                message_text(str(greeting["data"])[:200]),
                name,
                options,
                model,
                int(greeting["rounds"]),
                dict(spec.get("privacy", {})),
                asks_for_moments(greeting, table=table),
                tuple(map(str, greeting.get("metrics", ()))),
                bool(greeting.get("validate")),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as fault:
            raise SpecError(f"The greeting of the server cannot be read: {type(fault).__name__}") from fault
        methods.method_class(name)
        return terms

    @property
    def key(self) -> str:
        """Hash of the terms that matter for consent. The model and the number of rounds do not."""
        plain = {key: value for key, value in dataclasses.asdict(self).items() if key not in ("model", "rounds")}
        for key in ("metrics", "validate"):  # without them, the hash is that of earlier versions
            plain = plain if plain[key] else {name: value for name, value in plain.items() if name != key}
        return hashlib.blake2b(json.dumps(plain, sort_keys=True, default=str).encode(), digest_size=16).hexdigest()

    def card(self) -> Card:
        """What the server will see, as this client knows the method; nothing of it comes from the server."""
        defaults = {key: _listed(value) for key, value in method_options(self.method).items()}
        shipped = shipped_card(self.method)
        if shipped is not None and all(_listed(value) == defaults.get(key) for key, value in self.options.items()):
            return shipped
        known = {key: value for key, value in self.options.items() if key in defaults}
        return _measured(self.method, json.dumps(known, sort_keys=True))

    def works(self) -> set[str]:
        """Names of the works that the method and its evaluations need; a client runs no others."""
        return {ask.work for ask in self.card().exchanges} | {*_EVALUATION, *(_METRICS if self.metrics else ())}

    def sentences(self) -> list[str]:
        """What the client would reveal."""
        lines = [f"The server wants to run {self.method} with model {self.model} for {self.rounds} rounds."]
        lines += self.card().sentences()
        lines.append(
            "When it joins, the client states: the shape of its inputs, the number of classes and of training and test "
            "examples, the largest magnitude of an input, and for a table hashes of the names of columns and classes"
            + (", and sums and sums of squares of its inputs per feature." if self.moments else ".")
        )
        lines.append("The server can read every value of a reply, also models of which it needs only sums.")
        parts = "test examples and on validation examples" if self.validate else "test examples"
        lines.append(f"In each evaluation it states: its number of correct predictions and its loss on {parts}.")
        if self.metrics:
            lines.append(
                f"For the metrics {', '.join(self.metrics)} it also states: its numbers of examples, of predictions "
                "and of correct predictions per class, sums of its errors and of its confidence; or its own value."
            )
        if self.privacy.get("noise_multiplier"):
            lines.append("The server says that it adds noise to sums of updates; the client cannot verify that.")
        return lines


def asks_for_moments(greeting: Mapping[str, Any], *, table: bool) -> bool:
    """Whether a client is asked for the sums of its inputs.

    Args:
        greeting: What the server says about its run.
        table: Whether the client's data are a table.
    """
    asked = greeting.get("moments")
    return table if asked == "tables" else bool(asked)


@lru_cache(maxsize=16)
def _measured(method: str, options: str) -> Card:
    """The card with these settings, as JSON; it is measured once, because every greeting needs it."""
    return measure_card(method, {key: _tupled(value) for key, value in json.loads(options).items()})


def _listed(value: Any) -> Any:
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(item) for item in value) if isinstance(value, list | tuple) else value
