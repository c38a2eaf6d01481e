"""Recurrent networks of the papers, put together from layers; their counts of parameters are asserted by the tests.

Those for words take vectors, (time, features): where words are embedded by a table that nobody learns, the table
belongs to the data, and neither the model nor what is sent knows of it. `char-lstm` takes ids and learns its vectors.
"""

from __future__ import annotations

from typing import Any, Literal

from coterie.errors import SpecError
from coterie.models.cells import Embedding, Recurrent
from coterie.models.layers import Dense, Dropout, Layer, Plain, relu
from coterie.models.networks import layered
from coterie.models.task import Task


def _odds(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.concatenate([jnp.zeros_like(x), x], axis=1)


#: Two classes from one number x, the logits 0 and x: their cross-entropy is that of σ(x).
yes_or_no = Plain(_odds, lambda shape: (2,))


def _on_vectors(
    name: str, shape: tuple[int, ...], classes: int | None, layers: list[Layer], normalize: Any, l2: float
) -> Task:
    if len(shape) != 2:
        raise SpecError(
            f"{name} takes vectors in a row, (time, features), such as embedded words; the data have {shape}"
        )
    if layers[-1] is yes_or_no and classes not in (2, None):
        raise SpecError(f"{name} answers yes or no: it takes 2 classes, the data have {classes}; use bilstm or bigru")
    return layered(name, shape, classes, layers, normalize=normalize, l2=l2)


def lstm(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FedProx's and FedGroup's for Sent140: two LSTM layers of 100, dense 30, one output."""
    layers: list[Layer] = [Recurrent("lstm", 100, sequences=True), Recurrent("lstm", 100), Dense(30), Dense(1)]
    return _on_vectors("lstm", shape, classes, [*layers, yes_or_no], normalize, l2)


def _two_ways(kind: Literal["lstm", "gru"], biases: Literal[1, 2], classes: int | None) -> list[Layer]:
    first = Recurrent(kind, 64, sequences=True, biases=biases, both_ways=True)
    second = Recurrent(kind, 32, biases=biases, both_ways=True)
    return [first, second, Dense(64), relu, Dropout(0.5), Dense(classes or 1)]


def bilstm(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's LSTM for Sent140: two layers of 64 and 32 units both ways, dense 64, dropout."""
    return _on_vectors("bilstm", shape, classes, _two_ways("lstm", 1, classes), normalize, l2)


def bigru(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's GRU for Sent140: two layers of 64 and 32 units both ways, dense 64, dropout."""
    return _on_vectors("bigru", shape, classes, _two_ways("gru", 2, classes), normalize, l2)


def rnn(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FedSim's for Fed-Goodreads: 128 simple units, one output."""
    return _on_vectors("rnn", shape, classes, [Recurrent("simple", 128), Dense(1), yes_or_no], normalize, l2)


def char_lstm(
    shape: tuple[int, ...],
    classes: int | None,
    /,
    *,
    tokens: int = 80,
    units: int = 256,
    biases: Literal[1, 2] = 2,
    normalize: Any = None,
    l2: float = 0.0,
) -> Task:
    """SR-FCA's and LEAF's for Shakespeare: 8 learned numbers a character, two LSTM layers, dense.

    Args:
        shape: Of one input.
        classes: How many.
        tokens: How many characters there are.
        units: Of each layer; 100 in the configuration of CFL.
        biases: 2 as in PyTorch, 1 as in TensorFlow.
        normalize: Nothing: characters are no quantities.
        l2: Penalty on kernels while training.
    """
    if len(shape) != 1:
        raise SpecError(f"char-lstm takes ids of characters in a row, (time,); the data have {shape}")
    for setting, value, allowed in (("tokens", tokens, None), ("units", units, None), ("biases", biases, (1, 2))):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (allowed and value not in allowed):
            meant = "1 or 2" if allowed else "a whole number of at least 1"
            raise SpecError(f"char-lstm.{setting} must be {meant}, got {value!r}")
    inner: list[Layer] = [
        Recurrent("lstm", units, sequences=True, biases=biases),
        Recurrent("lstm", units, biases=biases),
    ]
    layers = [Embedding(tokens, 8), *inner, Dense(classes or 1)]
    return layered("char-lstm", shape, classes, layers, normalize=normalize, l2=l2, how="torch", tokens=tokens)
