"""Compiled code that calls PyTorch: outputs, their gradients, and losses of a user's own.

A compiled loop hands over buffers and gets them back filled (`buffer_callback`); nothing in between waits for JAX, so
that however many loops run at a time, none waits for another. (`jax.pure_callback` puts its arguments on the device
first, which waits for one of XLA's threads; where calls hold all of those, everything stands still.) Of the module each
call has a copy to itself. PyTorch keeps no graph between the two calls of a step, so the gradient's call computes the
outputs once more.

While a client trains, the module sees the examples of the batch and no filling. Batch normalization of one number a
channel, which PyTorch refuses, gives what Coterie's own layer gives: the shift, and 0 as the variance of the batch.

What is raised on PyTorch's side leaves compiled code as a text. It is kept here (`Faults`), and the federation raises
its own error from it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from coterie.torch.modules import Seen, at, nested, path_of, tensors
from coterie.torch.pytorch import one_thread, pytorch, seeded
from coterie.types import Array, Params


class Faults:
    """What was raised on PyTorch's side."""

    def __init__(self) -> None:
        """Nothing yet."""
        self._met: list[BaseException] = []

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Keep what is raised in here, and let it go on."""
        try:
            yield
        except BaseException as fault:
            self._met.append(fault)
            raise

    def first(self) -> BaseException | None:
        """What was raised first since the last time that anybody asked, or None."""
        met, self._met = self._met, []
        return met[0] if met else None


@dataclass(frozen=True, eq=False)
class Host:
    """The side on which PyTorch runs.

    Attributes:
        seen: The module.
        arranged: Inputs as they come → as the module wants them.
        classes: How many, or None for numbers.
        faults: Where to keep what the module raises.
        free: Copies of the module in nobody's hands.
    """

    seen: Seen
    arranged: Callable[[Array], Array]
    classes: int | None
    faults: Faults
    free: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def forward(
        self, context: Any, out: Any, params: Sequence[Any], stats: Sequence[Any], x: Any, key: Any, weight: Any
    ) -> None:
        """Fill in outputs and new statistics; outputs of filling are 0."""
        outputs, fresh = np.asarray(out[0]), [np.asarray(each) for each in out[1]]
        outputs[...] = 0
        for new, old in zip(fresh, stats, strict=True):
            new[...] = np.asarray(old)
        rows = _examples(weight)
        if rows is not None and not len(rows):
            return
        training = weight is not None
        with self.faults.kept(), pytorch().no_grad(), self._at(params, stats, key, training) as (module, held):
            outputs[slice(None) if rows is None else rows] = self._outputs(module, x, rows).numpy()
            for new, name in zip(fresh, self.seen.stats, strict=True):
                new[...] = held[name].numpy()

    def backward(
        self,
        context: Any,
        out: Sequence[Any],
        params: Sequence[Any],
        stats: Sequence[Any],
        x: Any,
        key: Any,
        weight: Any,
        slope: Any,
    ) -> None:
        """Fill in the gradient of Σ slope · outputs with respect to the parameters."""
        rows = _examples(weight)
        grads: Sequence[Any] = [None] * len(out)
        if rows is None or len(rows):
            with self.faults.kept(), self._at(params, stats, key, weight is not None) as (module, held):
                outputs = self._outputs(module, x, rows)
                if outputs.requires_grad:
                    along = [held[name] for name in self.seen.params]
                    grads = pytorch().autograd.grad(outputs, along, _tensor(slope, rows), allow_unused=True)
        for into, grad in zip(out, grads, strict=True):
            np.asarray(into)[...] = 0 if grad is None else grad.numpy()

    def _outputs(self, module: Any, x: Any, rows: Array | None) -> Any:
        inputs = np.asarray(x) if rows is None else np.asarray(x)[rows]
        outputs = module(pytorch().from_numpy(self.arranged(inputs).copy()))
        return outputs.reshape(len(inputs)) if self.classes is None else outputs

    @contextmanager
    def _at(self, params: Sequence[Any], stats: Sequence[Any], key: Any, training: bool) -> Iterator[Any]:
        """The module with these parameters, and its tensors by name."""
        torch = pytorch()
        with one_thread(), nullcontext() if key is None else seeded(int(np.asarray(key).view(np.uint64)[0])):
            try:
                module, held = self.free.pop()
            except IndexError:
                module = _able(copy.deepcopy(self.seen.module))
                held = tensors(module)
            try:
                with torch.no_grad():
                    for name, value in zip((*self.seen.params, *self.seen.stats), (*params, *stats), strict=True):
                        held[name].copy_(_tensor(value))
                yield module.train(training), held
            finally:
                self.free.append((module, held))


def _able(module: Any) -> Any:
    """The module, whose batch normalization takes one number a channel, too."""
    plain = pytorch().nn.modules.batchnorm._BatchNorm.forward
    for layer in module.modules():
        if getattr(type(layer), "forward", None) is plain:
            layer.forward = partial(_normalised, layer, layer.forward)
    return module


def _normalised(layer: Any, forward: Callable[[Any], Any], x: Any) -> Any:
    """What a layer of batch normalization gives; of one number a channel, whose mean it is, with a variance of 0."""
    if x.dim() < 2 or x.numel() != x.shape[1] or not (layer.training or layer.running_mean is None):
        return forward(x)
    if layer.running_mean is not None:
        with pytorch().no_grad():
            layer.running_mean.lerp_(x.detach().reshape(-1), layer.momentum)
            layer.running_var.mul_(1 - layer.momentum)
    shape = (1, -1, *[1] * (x.dim() - 2))
    normal = x - x  # with a gradient of 0
    return normal if layer.weight is None else normal * layer.weight.reshape(shape) + layer.bias.reshape(shape)


def _examples(weight: Any) -> Array | None:
    """The places of examples among filling; None for all."""
    return None if weight is None else np.flatnonzero(np.asarray(weight))


def _tensor(value: Any, rows: Array | None = None) -> Any:
    array = np.asarray(value).copy() if rows is None else np.asarray(value)[rows]
    return pytorch().from_numpy(array)


def called(host: Host) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """What a task needs of a module that PyTorch runs: `apply` and `learn`."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    seen = host.seen
    paths = [path_of(name, False) for name in seen.params], [path_of(name, True) for name in seen.stats]

    def like(value: Any) -> Any:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)

    @jax.custom_vjp
    def run(params: Any, stats: Any, x: Any, key: Any, weight: Any) -> Any:
        shape = (len(x),) if host.classes is None else (len(x), host.classes)
        gives = jax.ShapeDtypeStruct(shape, np.float32), [like(value) for value in stats]
        return buffer_callback(host.forward, gives, vmap_method="sequential")(params, stats, x, key, weight)

    def forward(*given: Any) -> Any:
        return run(*given), given

    def backward(given: Any, slope: Any) -> Any:
        gives = [like(value) for value in given[0]]
        grads = buffer_callback(host.backward, gives, vmap_method="sequential")(*given, slope[0])
        return grads, None, None, None, None  # statistics, inputs, key and weights have no gradient

    run.defvjp(forward, backward)

    def on_tree(params: Params, x: Any, key: Any, weight: Any) -> Any:
        own, stats = ([at(params, path) for path in some] for some in paths)
        return run(own, stats, x, key, weight)

    def apply(params: Params, x: Any, key: Any) -> Any:
        return on_tree(params, x, None, None)[0]

    def learn(params: Params, x: Any, key: Any, weight: Any) -> Any:
        outputs, stats = on_tree(params, x, key, weight)
        return outputs, nested(dict(zip(seen.stats, stats, strict=True)), seen.stats)

    return apply, learn


def called_loss(per_example: Callable[[Any, Any], Any], faults: Faults) -> Callable[[Any, Any], Any]:
    """A loss that PyTorch computes, of each example: (outputs, labels or numbers) → losses."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    def labels(y: Any) -> Any:
        array = np.asarray(y).copy()
        return pytorch().from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)

    def value(context: Any, out: Any, outputs: Any, y: Any) -> None:
        with faults.kept(), one_thread(), pytorch().no_grad():
            np.asarray(out)[...] = per_example(_tensor(outputs), labels(y)).numpy()

    def slopes(context: Any, out: Any, outputs: Any, y: Any, slope: Any) -> None:
        with faults.kept(), one_thread():
            at_outputs = _tensor(outputs).requires_grad_(True)
            losses = per_example(at_outputs, labels(y))
            np.asarray(out)[...] = pytorch().autograd.grad(losses, at_outputs, _tensor(slope))[0].numpy()

    @jax.custom_vjp
    def run(outputs: Any, y: Any) -> Any:
        gives = jax.ShapeDtypeStruct((len(outputs),), np.float32)
        return buffer_callback(value, gives, vmap_method="sequential")(outputs, y)

    def backward(given: Any, slope: Any) -> Any:
        gives = jax.ShapeDtypeStruct(given[0].shape, given[0].dtype)
        return buffer_callback(slopes, gives, vmap_method="sequential")(*given, slope), None

    run.defvjp(lambda *given: (run(*given), given), backward)
    return run
