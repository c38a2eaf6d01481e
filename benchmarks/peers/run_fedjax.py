"""A round of FedJAX's federated averaging, with networks in haiku, as in its own models.

The recurrent network is a loop over time (`hk.dynamic_unroll`), which compiles in seconds.
"""

from __future__ import annotations

from functools import lru_cache

import fedjax
import haiku as hk
import jax
import jax.numpy as jnp
import numpy as np
from worker import clients, seconds, serve


def _convolutions(x):
    for filters in (32, 64):
        x = jax.nn.relu(hk.Conv2D(filters, 5)(x))
        x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return hk.Linear(10)(hk.Flatten()(x))


def _lenet5(x):
    for filters in (6, 16):
        x = jax.nn.relu(hk.Conv2D(filters, 5, padding="VALID")(x))
        x = hk.max_pool(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return hk.nets.MLP([120, 84, 10])(hk.Flatten()(x))


def _char_lstm(ids):
    x = hk.Embed(80, 8)(jnp.transpose(ids))
    core = hk.DeepRNN([hk.LSTM(256), hk.LSTM(256)])
    outputs, _ = hk.dynamic_unroll(core, x, core.initial_state(ids.shape[0]))
    return hk.Linear(80)(outputs[-1])


NETWORKS = {
    "mclr": lambda x: hk.Linear(10)(hk.Flatten()(x)),
    "mlp": lambda x: hk.Linear(10)(jax.nn.relu(hk.Linear(128)(hk.Flatten()(x)))),
    "cnn": lambda x: _convolutions(x[..., None]),
    "lenet5": _lenet5,
    "charlstm": _char_lstm,
}


def _loss(batch, logits):
    return fedjax.metrics.unreduced_cross_entropy_loss(batch["y"], logits)


@lru_cache
def prepared(name, file, epochs, batch_size, learning_rate):
    """The algorithm, its initial state, its clients, and the number of steps of a round."""
    network = hk.transform(lambda batch: NETWORKS[name](batch["x"]))
    examples = [{"x": x.astype(np.int32) if x.dtype.kind == "u" else x, "y": y} for x, y in clients(file)]
    sample = {key: value[:1] for key, value in examples[0].items()}
    model = fedjax.create_model_from_haiku(network, sample, train_loss=_loss)
    algorithm = fedjax.algorithms.fed_avg.federated_averaging(
        fedjax.model_grad(model),
        client_optimizer=fedjax.optimizers.sgd(learning_rate),
        server_optimizer=fedjax.optimizers.sgd(1.0),
        client_batch_hparams=fedjax.ShuffleRepeatBatchHParams(batch_size=batch_size, num_epochs=epochs),
    )
    keys = jax.random.split(jax.random.PRNGKey(0), len(examples))
    datasets = [(i, fedjax.ClientDataset(each), keys[i]) for i, each in enumerate(examples)]
    number = sum(-(-epochs * len(each["y"]) // batch_size) for each in examples)  # batches may span epochs
    return algorithm, algorithm.init(model.init(jax.random.PRNGKey(1))), datasets, number


def run(request):
    settings = (request["epochs"], request["batch_size"], request["learning_rate"])
    algorithm, state, datasets, number = prepared(request["model"], request["clients"], *settings)

    def one_round():
        new, _ = algorithm.apply(state, datasets)
        jax.block_until_ready(new.params)

    return seconds(one_round), number


if __name__ == "__main__":
    serve(run)
