"""How fast is clustering? Cold start, MADC, bipartition, trimmed mean, a FedGroup round, SR-FCA's cross losses.

    python benchmarks/how_fast_is_clustering.py [--json] [--tiny]

Cold start: pre-trained updates in five planted clusters, float32. `ours` is EDC through the Gram matrix and k-means;
`reference` is what FedGroup's code does with scikit-learn on the full matrix: TruncatedSVD, cosine similarities with
the singular vectors, KMeans. Both run in this process, alternately, five times; both must find the planted clusters.
The memory of MADC is the peak that Python and NumPy allocate during one call, including the result. A FedGroup round in
which all clients have a cluster is compared with a FedAvg round of the same cohort: 20 of 1,000 MNIST clients, 10
epochs, batch size 10.

Cross losses: 100 models (MLP 784-200-10), each on the 600 MNIST images of each of 100 clients, as in SR-FCA. `ours` is
one ask of the vectorized backend. It is compared with a loop over pairs that calls a jitted mean loss (a tenth is
timed), and with the rate of a product of two large float32 matrices on two threads. All alternately, three times.

Class angles: 100 clients with orthonormal (784, p) bases of ten classes. The reference is a loop over
scipy.linalg.subspace_angles; every 50th pair of each class is timed and the time scaled; both must agree. Class
subspaces: one ask of 100 clients for the bases of 60 and of 600 random images of each of ten classes.
"""

from __future__ import annotations

import tracemalloc

import numpy as np
from common import alternate, arguments, empty_index, finish, images, power_law, progress, ratio, spread

from coterie import clustering, models, tree
from coterie.aggregation import trimmed_mean, uniform_mean
from coterie.clients import LocalSGD, class_subspaces, losses_of
from coterie.data.federated import FederatedData, Index, aligned
from coterie.data.partition import numbered
from coterie.federation import vectorized
from coterie.methods.fedavg import FedAvg
from coterie.methods.fedgroup import FedGroup
from coterie.metrics import adjusted_rand
from coterie.runs.sampling import Sampler
from coterie.runs.session import Session
from coterie.seeds import Seed

CLIENTS, CLUSTERS = 100, 5
SETTINGS = class_subspaces.Subspaces()


def planted(clients, d, clusters=CLUSTERS):
    """Updates around the direction of each client's cluster, and the clusters."""
    rng = Seed(0).fold("updates").generator()
    centers = rng.standard_normal((clusters, d), dtype=np.float32)
    truth = np.arange(clients) % clusters
    updates = rng.standard_normal((clients, d), dtype=np.float32)
    updates += centers[truth]
    return updates, truth


def ours(updates):
    return clustering.kmeans(clustering.edc_embedding(updates, CLUSTERS), CLUSTERS, Seed(0))[0]


def reference(updates):
    from sklearn.cluster import KMeans
    from sklearn.decomposition import TruncatedSVD
    from sklearn.metrics.pairwise import cosine_similarity

    svd = TruncatedSVD(CLUSTERS, random_state=0).fit(updates)
    return KMeans(CLUSTERS, n_init=10, random_state=0).fit(cosine_similarity(updates, svd.components_)).labels_


def alternately(times, first, second, scale=1.0):
    """Best and median seconds of two calls by name, and those of the second divided by the first; they take turns.

    Args:
        times: Number of times that each is called.
        first: Name and function of one call.
        second: Name and function of the other.
        scale: Factor of the times of the second, of which only part is run.
    """
    took = alternate(times, dict((first, second)))
    ours, theirs = took[first[0]], [scale * each for each in took[second[0]]]
    return {"seconds": {first[0]: spread(ours), second[0]: spread(theirs)}, "ratio": ratio(theirs, ours)}


def alone(times, call):
    """Best and median seconds of one call."""
    return spread(alternate(times, {"call": call})["call"])


def cold_start(d, times):
    updates, truth = planted(CLIENTS, d)
    names = [str(i) for i in range(CLIENTS)]

    def score(labels):
        return adjusted_rand(dict(zip(names, labels.tolist(), strict=True)), dict(zip(names, truth, strict=True)))

    agree = {
        "ours": score(ours(updates)),
        "reference": score(reference(updates)),
    }  # loads imports
    times = alternately(times, ("ours", lambda: ours(updates)), ("reference", lambda: reference(updates)))
    return {"d": d, **times, "adjusted_rand": agree}


def madc(clients, times):
    """Seconds of MADC given the cosine matrix, and the memory besides that matrix."""
    cosines = clustering.cosine(planted(clients, 64)[0])
    clustering.madc_of(cosines[:200, :200])  # loads imports
    seconds = alone(times, lambda: clustering.madc_of(cosines))
    tracemalloc.start()
    clustering.madc_of(cosines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {"clients": clients, "seconds": seconds, "peak_bytes": peak}


def bipartition(clients, times):
    similarities = clustering.cosine(planted(clients, 64, clusters=2)[0])
    clustering.bipartition(similarities[:10, :10])
    return {"clients": clients, "seconds": alone(times, lambda: clustering.bipartition(similarities))}


def means(models, d, times):
    bank = Seed(0).fold("bank").generator().standard_normal((models, d), dtype=np.float32)
    plain, trimmed = ("plain", lambda: uniform_mean(bank)), ("trimmed", lambda: trimmed_mean(bank, 0.1))
    return {"models": models, "d": d, **alternately(times, trimmed, plain)}


def rounds(clients, times):
    """Best seconds of a round of each method, alternately, with the same cohort; all clients have a cluster."""
    data, seed = power_law(clients), Seed(0)
    task, local = models.mclr(data.shape, data.classes), LocalSGD(epochs=10, batch_size=10, learning_rate=0.03)
    settings = {"fedavg": FedAvg(local), "fedgroup": FedGroup(local, clusters=3)}
    ready = {}
    for name, method in settings.items():
        fed = vectorized(data, task)
        session = Session(method, fed, seed, Sampler(fed.clients, 20, seed))
        while session.stage == "prepare":
            session.step()
        ready[name] = (method, session.state, fed)
    cohort = Sampler(data.clients, 20, seed).cohort(0)

    def one(name):
        method, state, fed = ready[name]
        return lambda: method.round(state, fed, cohort, seed)

    for name in settings:
        one(name)()  # compiles
    pair = [(name, one(name)) for name in ("fedgroup", "fedavg")]
    return {"clients": clients, "cohort": len(cohort), **alternately(times, *pair)}


def cross_losses(clients, samples, width, times):
    """Seconds of all cross losses and of the loop over pairs, and the rates of both and of a large product."""
    import jax
    from threadpoolctl import threadpool_limits

    x, y, _ = images("mnist", (28, 28), clients * samples)
    index = Index.from_sizes(np.arange(len(x), dtype=np.int32), np.full(clients, samples))
    stored_bytes = aligned(np.rint(255 * x).astype(np.uint8))
    data = FederatedData("images", stored_bytes, y, numbered(clients), index, empty_index(clients), 10)
    task = models.mlp((28, 28), 10, widths=(width,), normalize=models.Normalize(0.0, 255.0))
    fed = vectorized(data, task)
    bank = tree.stack(task.init(Seed(j)) for j in range(clients))
    one = jax.jit(lambda model, x, y: task.losses(model, x, y).mean())
    held = [jax.device_put(tree.row(bank, j)) for j in range(clients)]
    examples = [jax.device_put(data.examples(client)) for client in fed.clients[: clients // 10]]
    square = np.random.default_rng(0).random((4096 if clients > 10 else 256,) * 2, dtype=np.float32)

    def ours():
        return fed.ask(fed.clients, losses_of, Seed(0), centers=bank)["losses"]

    def loop():
        return np.array([[float(one(model, *mine)) for model in held] for mine in examples])

    def product():
        with threadpool_limits(2):
            return square @ square

    np.testing.assert_allclose(ours()[: len(examples)], loop(), rtol=1e-4)  # also compiles both
    took = alternate(times, {"ours": ours, "loop": loop, "product": product})
    took["loop"] = [each * clients / len(examples) for each in took["loop"]]
    work = 2 * clients * clients * samples * (784 * width + width * 10)
    rates = {"ours": work / min(took["ours"]), "product": 2 * len(square) ** 3 / min(took["product"])}
    return {
        "clients": clients,
        "seconds": {name: spread(each) for name, each in took.items()},
        "ratio": ratio(took["loop"], took["ours"]),
        "flops": rates,
        "share": rates["ours"] / rates["product"],
    }


def class_angles(clients, classes, p, times):
    """Seconds of FLAG's angles for all classes and pairs, and of a loop over pairs."""
    from scipy.linalg import subspace_angles

    rng = Seed(0).fold("bases").generator()
    bases = np.linalg.qr(rng.standard_normal((clients, classes, 784, p)))[0].astype(np.float32)
    pairs = [(i, j) for i in range(clients) for j in range(i)]
    some = pairs[:: 50 if clients > 10 else 5]

    def ours():
        return clustering.class_angles(bases, bases)

    def loop():
        return np.rad2deg(
            [[subspace_angles(*bases[pair, c]).min() for c in range(classes)] for pair in map(list, some)]
        )

    np.testing.assert_allclose([ours()[pair] for pair in some], loop(), atol=1e-3)  # loads imports
    found = alternately(times, ("ours", ours), ("loop", loop), scale=len(pairs) / len(some))
    return {"clients": clients, "classes": classes, "p": p, **found}


def subspaces(clients, classes, count_per_class, times):
    """Seconds of one ask for the bases of every class."""
    rng, count = Seed(0).fold("images").generator(), classes * count_per_class
    x = aligned(rng.integers(0, 256, (count, 28, 28), dtype=np.uint8))
    y = np.tile(np.arange(classes, dtype=np.int32), count_per_class)
    order = np.concatenate([rng.permutation(count).astype(np.int32) for _ in range(clients)])
    index = Index.from_sizes(order, np.full(clients, count))
    data = FederatedData("images", x, y, numbered(clients), index, empty_index(clients), classes)
    fed = vectorized(data, models.mclr((28, 28), classes, normalize=models.Normalize(33.0, 79.0)))
    seconds = alone(times, lambda: fed.ask(fed.clients, class_subspaces.class_subspaces, Seed(0), how=SETTINGS))
    return {"clients": clients, "classes": classes, "images": count_per_class, "seconds": seconds}


#: Function → seconds that it usually takes.
USUALLY = {"cold_start": 10, "means": 10, "rounds": 10, "cross_losses": 40, "class_angles": 20, "class_subspaces": 30}


def measure(tiny):
    """All tables, by name; each is a list of rows."""
    times = 2 if tiny else 5
    tables = {
        "cold_start": lambda: [cold_start(d, times) for d in ((785, 7_850) if tiny else (7_850, 101_770, 407_050))],
        "madc": lambda: [madc(200 if tiny else 2_000, min(times, 3))],
        "bipartition": lambda: [bipartition(100 if tiny else 1_000, times)],
        "means": lambda: [means(*(10, 4_000) if tiny else (100, 400_000), times)],
        "rounds": lambda: [rounds(100 if tiny else 1_000, 4 * times)],
        "cross_losses": lambda: [cross_losses(*(10, 20, 8) if tiny else (100, 600, 200), min(times, 3))],
        "class_angles": lambda: [class_angles(*(10, 2) if tiny else (100, 10), p, min(times, 3)) for p in (1, 6)],
        "class_subspaces": lambda: [
            subspaces(*(5, 2) if tiny else (100, 10), n, 1) for n in ((6,) if tiny else (60, 600))
        ],
    }
    results = {}
    for name, table in tables.items():
        progress(name.replace("_", " "), None if tiny else USUALLY.get(name))
        results[name] = table()
    return results


def show(results):
    for name, rows in results.items():
        for row in rows:
            about = ("d", "clients", "models", "cohort", "classes", "p", "images")
            what = ", ".join(f"{key} {row[key]:,}" for key in about if key in row)
            seconds = row["seconds"] if "best" not in row["seconds"] else {"ours": row["seconds"]}
            what += ": " + ", ".join(
                f"{key} {each['best']:.4f} s (median {each['median']:.4f})" for key, each in seconds.items()
            )
            if "ratio" in row:
                what += f", ratio {row['ratio']['best']:.2f} ({row['ratio']['median']:.2f})"
            for key in ("adjusted_rand", "peak_bytes", "share"):
                what += f", {key} {row[key]}" if key in row else ""
            print(f"{name.replace('_', ' ')}, {what}")


def main():
    options = arguments(__doc__.splitlines()[0])
    results = measure(options.tiny)
    show(results)
    finish(results, options)


if __name__ == "__main__":
    main()
