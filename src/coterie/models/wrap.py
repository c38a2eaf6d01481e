"""Tasks from other people's models: any flax module, or any pure pair of `init` and `apply`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from coterie import tree
from coterie.errors import SpecError
from coterie.models import backend
from coterie.models.task import Task
from coterie.seeds import Seed
from coterie.types import Params

if TYPE_CHECKING:
    from flax import linen


def from_functions(
    init: Callable[[Any], Params],
    apply: Callable[..., Any],
    shape: tuple[int, ...],
    classes: int | None,
    *,
    name: str = "custom",
    normalize: Any = None,
    l2: float = 0.0,
    tokens: int | None = None,
) -> Task:
    """A task from a pure pair.

    Args:
        init: `jax.random` key → parameters, a nested dict of arrays.
        apply: (parameters, inputs) → logits or predictions; may take a third argument without a default, a key, which
            is None outside local training.
        shape: The shape of one input.
        classes: How many, or None for regression.
        name: What to call it.
        normalize: A function of the inputs, or None.
        l2: Penalty on kernels while training.
        tokens: Inputs are ids below this number, handed over as int32; None: they are quantities, as float32.
    """
    taken = list(inspect.signature(apply).parameters.values())
    takes_key = len(taken) > 2 and taken[2].default is inspect.Parameter.empty

    def start(seed: Seed) -> Params:
        params = _checked(init(seed.key()), name)
        # A copy, so that the parameters are plain NumPy arrays of the layout that everything here expects.
        return tree.map(lambda leaf: np.array(leaf, np.float32, order="C"), params)

    def call(params: Params, x: Any, key: Any) -> Any:
        outputs = apply(params, x, key) if takes_key else apply(params, x)
        return outputs.reshape(outputs.shape[0]) if classes is None else outputs

    backend.start()
    layers = tuple(_checked(init(Seed(0).key()), name))
    return Task(name, start, call, shape, classes, normalize, layers, l2, random=takes_key, tokens=tokens)


def from_flax(
    module: linen.Module,
    shape: tuple[int, ...],
    classes: int | None,
    *,
    name: str | None = None,
    normalize: Any = None,
    l2: float = 0.0,
    tokens: int | None = None,
) -> Task:
    """A task from a flax linen module that is called with a batch of inputs.

    A module whose `__call__` takes `train` gets it; its dropout draws from the client's named seed.
    """
    takes_train = "train" in inspect.signature(type(module).__call__).parameters

    def init(key: Any) -> Params:
        options: dict[str, Any] = {"train": False} if takes_train else {}
        variables = module.init(key, np.zeros((1, *shape), np.float32 if tokens is None else np.int32), **options)
        extra = sorted(set(variables) - {"params"})
        if extra:
            raise SpecError(f"Module {type(module).__name__} has variables {', '.join(extra)}; only params can be used")
        return dict(variables["params"])

    def plain(params: Params, x: Any) -> Any:
        return module.apply({"params": params}, x)

    def keyed(params: Params, x: Any, key: Any) -> Any:
        rngs = {} if key is None else {"dropout": key}
        return module.apply({"params": params}, x, train=key is not None, rngs=rngs)

    return from_functions(
        init,
        keyed if takes_train else plain,
        shape,
        classes,
        name=name or type(module).__name__,
        normalize=normalize,
        l2=l2,
        tokens=tokens,
    )


def _checked(params: Any, name: str) -> Params:
    if not isinstance(params, dict) or not params:
        raise SpecError(f"init of model {name} must give a nested dict of arrays, got {params!r:.60}")
    for path, leaf in tree.paths(params):
        if not hasattr(leaf, "dtype"):
            raise SpecError(f"init of model {name} must give a nested dict of arrays, but {path} is {leaf!r:.60}")
    return params
