"""Recurrent networks of the papers. Tests compare their numbers of parameters with the papers.

Networks for words take vectors, (time, features): a fixed word embedding belongs to the data, not to the model, and is
never sent. `char-lstm` takes token ids and learns its embedding.
"""

from __future__ import annotations

from typing import Any, Literal

from coterie.errors import SpecError, shown
from coterie.models.cells import Embedding, Recurrent
from coterie.models.layers import Dense, Dropout, Layer, Plain, relu
from coterie.models.networks import layered
from coterie.models.task import MAX_UNITS, Task


def _two_logits(x: Any) -> Any:
    import jax.numpy as jnp

    return jnp.concatenate([jnp.zeros_like(x), x], axis=1)


#: Logits 0 and x of two classes from one output x: their cross-entropy is the binary cross-entropy of σ(x).
binary_logits = Plain(_two_logits, lambda shape: (2,), "binary logits")


def _on_vectors(
    name: str, shape: tuple[int, ...], classes: int | None, layers: list[Layer], normalize: Any, l2: float
) -> Task:
    if len(shape) != 2:
        raise SpecError(
            f"{name} takes sequences of vectors, (time, features), such as embedded words; the data have {shape}"
        )
    if layers[-1] is binary_logits and classes not in (2, None):
        raise SpecError(f"{name} is a binary classifier, the data have {classes} classes; use bilstm or bigru")
    return layered(name, shape, classes, layers, normalize=normalize, l2=l2)


def lstm(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """LSTM of FedProx and FedGroup for Sent140: two layers of 100 units, dense 30, one output."""
    layers: list[Layer] = [Recurrent("lstm", 100, sequences=True), Recurrent("lstm", 100), Dense(30), Dense(1)]
    return _on_vectors("lstm", shape, classes, [*layers, binary_logits], normalize, l2)


def _bidirectional(kind: Literal["lstm", "gru"], biases: Literal[1, 2], classes: int | None) -> list[Layer]:
    first = Recurrent(kind, 64, sequences=True, biases=biases, both_ways=True)
    second = Recurrent(kind, 32, biases=biases, both_ways=True)
    return [first, second, Dense(64), relu, Dropout(0.5), Dense(classes or 1)]


def bilstm(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's LSTM for Sent140: two bidirectional layers of 64 and 32 units, dense 64, dropout."""
    return _on_vectors("bilstm", shape, classes, _bidirectional("lstm", 1, classes), normalize, l2)


def bigru(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FlexCFL's GRU for Sent140: two bidirectional layers of 64 and 32 units, dense 64, dropout."""
    return _on_vectors("bigru", shape, classes, _bidirectional("gru", 2, classes), normalize, l2)


def rnn(shape: tuple[int, ...], classes: int | None, /, *, normalize: Any = None, l2: float = 0.0) -> Task:
    """FedSim's RNN for Fed-Goodreads: 128 simple recurrent units, one output."""
    return _on_vectors("rnn", shape, classes, [Recurrent("simple", 128), Dense(1), binary_logits], normalize, l2)


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
    """LSTM of SR-FCA and LEAF for Shakespeare: a learned embedding of width 8, two LSTM layers, dense.

    Args:
        shape: Shape of one input, (time,).
        classes: Number of classes.
        tokens: Number of characters.
        units: Units of each LSTM layer; CFL's experiments have 100.
        biases: 2 as in PyTorch, 1 as in TensorFlow.
        normalize: Must be None, because inputs are token ids.
        l2: Coefficient of the l2 penalty on kernels in training.
    """
    if len(shape) != 1:
        raise SpecError(f"char-lstm takes sequences of character ids, (time,); the data have {shape}")
    for setting, value, allowed in (("tokens", tokens, None), ("units", units, None), ("biases", biases, (1, 2))):
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not 1 <= value <= MAX_UNITS or (allowed and value not in allowed):
            expected = "1 or 2" if allowed else f"a whole number from 1 to {MAX_UNITS}"
            raise SpecError(f"char-lstm.{setting} must be {expected}, got {shown(value)}")
    inner: list[Layer] = [
        Recurrent("lstm", units, sequences=True, biases=biases),
        Recurrent("lstm", units, biases=biases),
    ]
    layers = [Embedding(tokens, 8), *inner, Dense(classes or 1)]
    return layered("char-lstm", shape, classes, layers, normalize=normalize, l2=l2, scheme="torch", tokens=tokens)
