"""FedAvg as a bare loop, for learning: no library but NumPy and the digits of scikit-learn.

Clients hold digits, each of four kinds another way up. In every round ten of them train the common model on their own
images, and the server takes the mean. The next example does the same through Coterie.
"""

from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

CLIENTS, COHORT, ROUNDS, EPOCHS, BATCH, RATE = 40, 10, 30, 10, 10, 0.03


def clients(draw):
    """Forty clients with as many images each, turned by their kind."""
    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8) / 16
    pieces = np.array_split(draw.permutation(len(images)), CLIENTS)
    return [(np.rot90(images[p], i % 4, axes=(1, 2)).reshape(len(p), 64), labels[p]) for i, p in enumerate(pieces)]


def probabilities(w, x):
    logits = x @ w[:-1] + w[-1]
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    return raised / raised.sum(axis=1, keepdims=True)


def local_update(w, x, y, draw):
    """A few epochs of SGD on the cross-entropy."""
    w = w.copy()
    for _ in range(EPOCHS):
        order = draw.permutation(len(y))
        for first in range(0, len(y), BATCH):
            rows = order[first : first + BATCH]
            error = probabilities(w, x[rows])
            error[np.arange(len(rows)), y[rows]] -= 1
            w[:-1] -= RATE * x[rows].T @ error / len(rows)
            w[-1] -= RATE * error.mean(axis=0)
    return w


def main():
    draw = np.random.default_rng(0)
    data = clients(draw)
    train = [(x[8:], y[8:]) for x, y in data]
    test = [(x[:8], y[:8]) for x, y in data]
    w = np.zeros((65, 10))  # weights, and biases in the last row
    for _ in range(ROUNDS):
        cohort = draw.choice(CLIENTS, COHORT, replace=False)
        trained = [local_update(w, *train[k], draw) for k in cohort]
        sizes = np.array([len(train[k][1]) for k in cohort])
        w = np.tensordot(sizes / sizes.sum(), trained, axes=1)
    right = sum((probabilities(w, x).argmax(axis=1) == y).sum() for x, y in test)
    accuracy = right / sum(len(y) for _, y in test)
    print(f"One model for all kinds: {100 * accuracy:.0f} %")
    return accuracy


if __name__ == "__main__":
    main()
