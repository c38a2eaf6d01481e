"""A trained model as an ONNX graph, for onnxruntime and other engines.

The graph takes the inputs as the data store them, as float32 (token ids as int64), and normalizes them itself. For
classification it gives `logits` and `probabilities`, for regression `prediction`. ONNX has the channels of images
first, Coterie last: images are transposed before the first layer that needs it, and back before a dense layer.

Needs the extra: `pip install 'coterie[onnx]'`.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from coterie.errors import SpecError
from coterie.models import Normalize, Task
from coterie.models.cells import Embedding, Recurrent
from coterie.models.layers import BatchNorm, Conv, Dense, Dropout, GroupNorm, Plain, Residual
from coterie.types import Array, Params

#: Version of the operators: the first with the axes of ReduceMax as an input, which onnxruntime has had since 2022.
OPSET = 18
_EPSILON = 1e-5

#: Gates in ONNX's order, as positions in Coterie's order (i, f, g, o; q, u, n): i, o, f, g; u, q, n.
_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "simple": (0,)}
_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "simple": "RNN"}


def to_onnx(task: Task, params: Params) -> bytes:
    """The bytes of an ONNX file with a trained model.

    Args:
        task: The model.
        params: Its parameters.

    Raises:
        SpecError: If the package `onnx` is missing, or the model has a layer that cannot be exported.
    """
    onnx = _onnx()
    if not task.network:
        raise SpecError(
            f"Model {task.name} cannot be exported to ONNX: its layers are not known. Export it to safetensors; for a "
            "PyTorch module use torch.onnx.export with record.torch_module(client, module=module)"
        )
    if task.normalize is not None and type(task.normalize) is not Normalize:
        raise SpecError(f"Model {task.name} cannot be exported to ONNX: its normalization is a function of your own")
    graph = _Graph(onnx, task.name)
    images = isinstance(task.network[0][1], Conv)
    shape = (*task.shape, 1) if images and len(task.shape) == 2 else tuple(task.shape)
    value = graph.normalized(task)
    if shape != tuple(task.shape):
        value = graph.reshaped(value, (0, *shape))
    value, _ = graph.layers(value, shape, task.network, params)
    return graph.finished(task, value)


def _onnx() -> Any:
    try:
        return importlib.import_module("onnx")
    except ImportError as fault:
        raise SpecError("The ONNX format needs an extra: pip install 'coterie[onnx]'") from fault


@dataclass
class _Graph:
    """A graph that grows by one layer at a time.

    Attributes:
        onnx: The package.
        name: Name of the model.
        nodes: The operators so far.
        constants: The arrays so far.
        channels_first: Whether the current value is an image with its channels first.
    """

    onnx: Any
    name: str
    nodes: list[Any] = field(default_factory=list)
    constants: list[Any] = field(default_factory=list)
    channels_first: bool = False

    def add(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Add an operator; returns the name of its last output. Earlier outputs are not used."""
        last = f"v{len(self.nodes)}"
        names = ["" for _ in range(outputs - 1)] + [last]
        self.nodes.append(self.onnx.helper.make_node(operator, list(inputs), names, **attributes))
        return last

    def constant(self, array: Any, dtype: Any = np.float32) -> str:
        """Add an array; returns its name."""
        name = f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array, dtype), name))
        return name

    def reshaped(self, value: str, shape: tuple[int, ...]) -> str:
        """Another shape of a value; 0 keeps an axis."""
        return self.add("Reshape", value, self.constant(shape, np.int64))

    def transposed(self, value: str, *order: int) -> str:
        """Another order of the axes of a value."""
        return self.add("Transpose", value, perm=list(order))

    def normalized(self, task: Task) -> str:
        """The inputs, normalized."""
        if task.tokens is not None or task.normalize is None:
            return "input"
        rule: Any = task.normalize
        moved = self.add("Sub", "input", self.constant(rule.mean))
        return self.add("Mul", moved, self.constant(1.0 / np.asarray(rule.deviation, np.float32)))

    def layers(self, value: str, shape: tuple[int, ...], network: Any, params: Params) -> tuple[str, tuple[int, ...]]:
        """Add layers; returns their output, and its shape with channels last."""
        for key, layer in network:
            add = _LAYERS.get(type(layer))
            if add is None:
                raise SpecError(
                    f"Layer {key} of model {self.name} is {type(layer).__name__}, which cannot be exported to ONNX"
                )
            value, shape = add(self, value, shape, layer, params.get(key, {}))
        return value, shape

    def as_image(self, value: str) -> str:
        """The value with its channels first."""
        if self.channels_first:
            return value
        self.channels_first = True
        return self.transposed(value, 0, 3, 1, 2)

    def as_stored(self, value: str) -> str:
        """The value with its channels last."""
        if not self.channels_first:
            return value
        self.channels_first = False
        return self.transposed(value, 0, 2, 3, 1)

    def finished(self, task: Task, value: str) -> bytes:
        """The bytes of the file, with the outputs of the model."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto
        if task.classes is None:
            self.nodes.append(helper.make_node("Reshape", [value, self.constant((-1,), np.int64)], ["prediction"]))
            outputs = [helper.make_tensor_value_info("prediction", kind.FLOAT, ["rows"])]
        else:
            self.nodes.append(helper.make_node("Identity", [value], ["logits"]))
            self.nodes.append(helper.make_node("Softmax", [value], ["probabilities"], axis=1))
            shape = ["rows", task.classes]
            outputs = [helper.make_tensor_value_info(name, kind.FLOAT, shape) for name in ("logits", "probabilities")]
        number = kind.FLOAT if task.tokens is None else kind.INT64
        inputs = [helper.make_tensor_value_info("input", number, ["rows", *task.shape])]
        graph = helper.make_graph(self.nodes, task.name, inputs, outputs, self.constants)
        # IR version 8 belongs to this version of the operators; newer ones are refused by older engines.
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8, producer_name="coterie"
        )
        self.onnx.checker.check_model(model, full_check=True)
        return bytes(model.SerializeToString())


_Shape = tuple[int, ...]
_Added = tuple[str, _Shape]


def _dense(graph: _Graph, value: str, shape: _Shape, layer: Dense, params: Params) -> _Added:
    flat = graph.reshaped(graph.as_stored(value), (0, math.prod(shape)))
    weights = [graph.constant(np.asarray(params["kernel"]).reshape(layer.outputs, -1))]
    if layer.bias:
        weights.append(graph.constant(np.asarray(params["bias"]).reshape(-1)))
    return graph.add("Gemm", flat, *weights, transB=1), (layer.outputs,)


def _conv(graph: _Graph, value: str, shape: _Shape, layer: Conv, params: Params) -> _Added:
    pads = [layer.pads(side) for side in shape[:2]]
    weights = [graph.constant(np.asarray(params["kernel"]).transpose(0, 3, 1, 2))]
    if layer.bias:
        weights.append(graph.constant(params["bias"]))
    out = graph.add(
        "Conv",
        graph.as_image(value),
        *weights,
        strides=[layer.stride] * 2,
        pads=[pads[0][0], pads[1][0], pads[0][1], pads[1][1]],
    )
    sides = ((side + sum(pad) - layer.size) // layer.stride + 1 for side, pad in zip(shape, pads, strict=False))
    return out, (*sides, layer.outputs)


def _plain(graph: _Graph, value: str, shape: _Shape, layer: Plain, params: Params) -> _Added:
    after = layer.shaped(shape)
    if layer.name == "relu":
        return graph.add("Relu", value), after
    if layer.name == "scaled":
        return graph.add("Mul", value, graph.constant(layer.value)), after
    if layer.name == "max pooling":
        side = [int(layer.value)] * 2
        return graph.add("MaxPool", graph.as_image(value), kernel_shape=side, strides=side), after
    if layer.name == "global max":
        image = graph.as_image(value)
        graph.channels_first = False
        return graph.add("ReduceMax", image, graph.constant((2, 3), np.int64), keepdims=0), after
    if layer.name == "binary logits":
        return graph.add("Concat", graph.add("Sub", value, value), value, axis=1), after
    raise SpecError(f"A layer of model {graph.name} is a function without a name, which cannot be exported to ONNX")


def _dropout(graph: _Graph, value: str, shape: _Shape, layer: Dropout, params: Params) -> _Added:
    return value, shape


def _group_norm(graph: _Graph, value: str, shape: _Shape, layer: GroupNorm, params: Params) -> _Added:
    height, width, channels = shape
    parts = graph.reshaped(graph.as_image(value), (0, layer.groups, -1))
    ones, zeros = graph.constant(np.ones(layer.groups)), graph.constant(np.zeros(layer.groups))
    normal = graph.add("InstanceNormalization", parts, ones, zeros, epsilon=_EPSILON)
    image = graph.reshaped(normal, (0, channels, height, width))
    scale, shift = (graph.constant(np.reshape(params[key], (-1, 1, 1))) for key in ("scale", "shift"))
    return graph.add("Add", graph.add("Mul", image, scale), shift), shape


def _batch_norm(graph: _Graph, value: str, shape: _Shape, layer: BatchNorm, params: Params) -> _Added:
    stats = params["stats"]
    arrays = (params["scale"], params["shift"], stats["mean"], stats["variance"])
    image = graph.as_image(value) if len(shape) == 3 else value
    return graph.add("BatchNormalization", image, *map(graph.constant, arrays), epsilon=_EPSILON), shape


def _residual(graph: _Graph, value: str, shape: _Shape, layer: Residual, params: Params) -> _Added:
    inner = [(f"layer{place:02d}", each) for place, each in enumerate(layer.layers)]
    value = graph.as_image(value) if len(shape) == 3 else value  # both summands have the same order of axes
    out, after = graph.layers(value, shape, inner, params)
    return graph.add("Add", value, graph.as_image(out) if len(shape) == 3 else out), after


def _recurrent(graph: _Graph, value: str, shape: _Shape, layer: Recurrent, params: Params) -> _Added:
    order, units = _GATES[layer.kind], layer.units
    ways = [params["forward"], params["backward"]] if layer.both_ways else [params]

    def gates(name: str) -> list[Array]:
        """The array of each direction, its gates in the order of ONNX."""
        zeros = np.zeros(len(order) * units, np.float32)
        blocks = [np.split(np.asarray(way.get(name, zeros)), len(order)) for way in ways]
        return [np.concatenate([block[gate] for gate in order]) for block in blocks]

    biases = [np.concatenate(both) for both in zip(gates("bias"), gates("recurrent_bias"), strict=True)]
    weights = [graph.constant(np.stack(each)) for each in (gates("kernel"), gates("recurrent"), biases)]
    attributes: dict[str, Any] = {"hidden_size": units, "direction": "bidirectional" if layer.both_ways else "forward"}
    if layer.kind == "gru":
        attributes["linear_before_reset"] = 1
    first = graph.transposed(value, 1, 0, 2)  # time first
    # The first output has all time steps, (time, directions, rows, units); the second the last, without the time.
    out = graph.add(_OPERATORS[layer.kind], first, *weights, outputs=1 if layer.sequences else 2, **attributes)
    width = units * len(ways)
    if layer.sequences:
        return graph.reshaped(graph.transposed(out, 2, 0, 1, 3), (0, 0, width)), (shape[0], width)
    return graph.reshaped(graph.transposed(out, 1, 0, 2), (0, width)), (width,)


def _embedding(graph: _Graph, value: str, shape: _Shape, layer: Embedding, params: Params) -> _Added:
    return graph.add("Gather", graph.constant(params["vectors"]), value), (*shape, layer.width)


_LAYERS: dict[type, Callable[..., _Added]] = {
    Dense: _dense,
    Conv: _conv,
    Plain: _plain,
    Dropout: _dropout,
    GroupNorm: _group_norm,
    BatchNorm: _batch_norm,
    Residual: _residual,
    Recurrent: _recurrent,
    Embedding: _embedding,
}
