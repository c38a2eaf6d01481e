"""Callbacks from compiled code to PyTorch: outputs and gradients of modules, and custom losses.

A compiled loop passes buffers that the callback fills (`buffer_callback`). The callback never waits for JAX, so that
any number of loops can run in parallel. (`jax.pure_callback` first puts its arguments on the device, which needs one of
XLA's threads; if callbacks occupy all threads, the program deadlocks.) Each call has its own copy of the module.
PyTorch keeps no graph between the two calls of a step, so the call for the gradient computes the outputs again.

In training, the module sees only the examples of a batch and no padding. PyTorch rejects batch normalization of a
single value per channel; here the result is that of Coterie's own layer: the shift, with a batch variance of 0.

Compiled code reports only the text of an exception raised in PyTorch. `Faults` stores the exception, and the federation
raises its own error from it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from coterie.torch.modules import ModuleInfo, at, nested, path_of, tensors
from coterie.torch.pytorch import one_thread, pytorch, seeded
from coterie.types import Array, Params


class Faults:
    """Exceptions raised in callbacks."""

    def __init__(self) -> None:
        """Start without exceptions."""
        self._raised: list[BaseException] = []

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """A context that records an exception and raises it again."""
        try:
            yield
        except BaseException as fault:
            self._raised.append(fault)
            raise

    def first(self) -> BaseException | None:
        """The first exception since the last call of this method, or None."""
        raised, self._raised = self._raised, []
        return raised[0] if raised else None


@dataclass(frozen=True, eq=False)
class Host:
    """Callbacks that run a module in PyTorch.

    Attributes:
        info: The module.
        arranged: Inputs of the task → inputs of the module.
        classes: Number of classes; None: regression.
        faults: Record of the module's exceptions.
        free: Copies of the module that are not in use.
    """

    info: ModuleInfo
    arranged: Callable[[Array], Array]
    classes: int | None
    faults: Faults
    free: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)

    def forward(
        self, context: Any, out: Any, params: Sequence[Any], stats: Sequence[Any], x: Any, key: Any, weight: Any
    ) -> None:
        """Write outputs and new statistics to `out`; outputs of padding are 0."""
        outputs, new_stats = np.asarray(out[0]), [np.asarray(each) for each in out[1]]
        outputs[...] = 0
        for new, old in zip(new_stats, stats, strict=True):
            new[...] = np.asarray(old)
        rows = _examples(weight)
        if rows is not None and not len(rows):
            return
        training = weight is not None
        with self.faults.recorded(), pytorch().no_grad(), self._at(params, stats, key, training) as (module, held):
            outputs[slice(None) if rows is None else rows] = self._outputs(module, x, rows).numpy()
            for new, name in zip(new_stats, self.info.stats, strict=True):
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
        cotangent: Any,
    ) -> None:
        """Write the gradient of Σ cotangent · outputs with respect to the parameters to `out`."""
        rows = _examples(weight)
        grads: Sequence[Any] = [None] * len(out)
        if rows is None or len(rows):
            with self.faults.recorded(), self._at(params, stats, key, weight is not None) as (module, held):
                outputs = self._outputs(module, x, rows)
                if outputs.requires_grad:
                    along = [held[name] for name in self.info.params]
                    grads = pytorch().autograd.grad(outputs, along, _tensor(cotangent, rows), allow_unused=True)
        for into, grad in zip(out, grads, strict=True):
            np.asarray(into)[...] = 0 if grad is None else grad.numpy()

    def _outputs(self, module: Any, x: Any, rows: Array | None) -> Any:
        inputs = np.asarray(x) if rows is None else np.asarray(x)[rows]
        outputs = module(pytorch().from_numpy(self.arranged(inputs).copy()))
        return outputs.reshape(len(inputs)) if self.classes is None else outputs

    @contextmanager
    def _at(self, params: Sequence[Any], stats: Sequence[Any], key: Any, training: bool) -> Iterator[Any]:
        """A context with a copy of the module that has these parameters, and its tensors by name."""
        torch = pytorch()
        with one_thread(), nullcontext() if key is None else seeded(int(np.asarray(key).view(np.uint64)[0])):
            try:
                module, held = self.free.pop()
            except IndexError:
                module = _with_single_value_norm(copy.deepcopy(self.info.module))
                held = tensors(module)
            try:
                with torch.no_grad():
                    for name, value in zip((*self.info.params, *self.info.stats), (*params, *stats), strict=True):
                        held[name].copy_(_tensor(value))
                yield module.train(training), held
            finally:
                self.free.append((module, held))


def _with_single_value_norm(module: Any) -> Any:
    """The module, with batch normalization that also accepts a single value per channel."""
    plain = pytorch().nn.modules.batchnorm._BatchNorm.forward
    for layer in module.modules():
        if getattr(type(layer), "forward", None) is plain:
            layer.forward = partial(_normalized, layer, layer.forward)
    return module


def _normalized(layer: Any, forward: Callable[[Any], Any], x: Any) -> Any:
    """The outputs of a batch normalization layer; a single value per channel is its own mean, with variance 0."""
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
    """Positions of the rows that are not padding; None: all rows."""
    return None if weight is None else np.flatnonzero(np.asarray(weight))


def _tensor(value: Any, rows: Array | None = None) -> Any:
    array = np.asarray(value).copy() if rows is None else np.asarray(value)[rows]
    return pytorch().from_numpy(array)


def callback_functions(host: Host) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The functions `apply` and `learn` of a task whose module runs in PyTorch."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    info = host.info
    paths = [path_of(name, False) for name in info.params], [path_of(name, True) for name in info.stats]

    def like(value: Any) -> Any:
        return jax.ShapeDtypeStruct(value.shape, value.dtype)

    @jax.custom_vjp
    def run(params: Any, stats: Any, x: Any, key: Any, weight: Any) -> Any:
        shape = (len(x),) if host.classes is None else (len(x), host.classes)
        result = jax.ShapeDtypeStruct(shape, np.float32), [like(value) for value in stats]
        return buffer_callback(host.forward, result, vmap_method="sequential")(params, stats, x, key, weight)

    def forward(*arguments: Any) -> Any:
        return run(*arguments), arguments

    def backward(arguments: Any, cotangent: Any) -> Any:
        result = [like(value) for value in arguments[0]]
        grads = buffer_callback(host.backward, result, vmap_method="sequential")(*arguments, cotangent[0])
        return grads, None, None, None, None  # statistics, inputs, key and weights have no gradient

    run.defvjp(forward, backward)

    def on_tree(params: Params, x: Any, key: Any, weight: Any) -> Any:
        own, stats = ([at(params, path) for path in some] for some in paths)
        return run(own, stats, x, key, weight)

    def apply(params: Params, x: Any, key: Any) -> Any:
        return on_tree(params, x, None, None)[0]

    def learn(params: Params, x: Any, key: Any, weight: Any) -> Any:
        outputs, stats = on_tree(params, x, key, weight)
        return outputs, nested(dict(zip(info.stats, stats, strict=True)), info.stats)

    return apply, learn


def callback_loss(per_example: Callable[[Any, Any], Any], faults: Faults) -> Callable[[Any, Any], Any]:
    """A function (outputs, labels or targets) → loss of each example, computed by PyTorch."""
    import jax
    from jax.experimental.buffer_callback import buffer_callback

    def labels(y: Any) -> Any:
        array = np.asarray(y).copy()
        return pytorch().from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)

    def value(context: Any, out: Any, outputs: Any, y: Any) -> None:
        with faults.recorded(), one_thread(), pytorch().no_grad():
            np.asarray(out)[...] = per_example(_tensor(outputs), labels(y)).numpy()

    def gradient(context: Any, out: Any, outputs: Any, y: Any, cotangent: Any) -> None:
        with faults.recorded(), one_thread():
            at_outputs = _tensor(outputs).requires_grad_(True)
            losses = per_example(at_outputs, labels(y))
            np.asarray(out)[...] = pytorch().autograd.grad(losses, at_outputs, _tensor(cotangent))[0].numpy()

    @jax.custom_vjp
    def run(outputs: Any, y: Any) -> Any:
        result = jax.ShapeDtypeStruct((len(outputs),), np.float32)
        return buffer_callback(value, result, vmap_method="sequential")(outputs, y)

    def backward(arguments: Any, cotangent: Any) -> Any:
        result = jax.ShapeDtypeStruct(arguments[0].shape, arguments[0].dtype)
        return buffer_callback(gradient, result, vmap_method="sequential")(*arguments, cotangent), None

    run.defvjp(lambda *arguments: (run(*arguments), arguments), backward)
    return run
