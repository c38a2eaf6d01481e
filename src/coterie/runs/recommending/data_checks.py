"""Data on which `recommend` cannot compare methods: too few clients or examples, or one label in all examples."""

from __future__ import annotations

from coterie.data.federated import FederatedData
from coterie.errors import DataError, shown

#: Number of clients from which there is a spread over clients, and so a standard error.
_MIN_CLIENTS = 2


def check_clients(data: FederatedData) -> None:
    """Check that several clients have examples to train on and others for validation.

    Raises:
        DataError: If there is one client, or fewer than two have two training examples.
    """
    if len(data.clients) < _MIN_CLIENTS:
        raise DataError(
            f"recommend compares methods over clients and needs at least {_MIN_CLIENTS}, but {data.name} has "
            f"{len(data.clients)} client. Add clients, or train on its examples alone with the method local"
        )
    count = int((data.sizes("fit") > 1).sum())
    if count >= _MIN_CLIENTS:
        return
    tests = len(data.test.order)
    aside = (
        f", after {tests:,} of {tests + len(data.fit.order):,} examples were set aside for the test" if tests else ""
    )
    fewer = ", or set fewer aside (data.test_share, or the column split)" if tests else ""
    raise DataError(
        f"{f'Only {count}' if count else 'No'} client of {data.name} has two training examples, one to train on and "
        f"one for validation{aside}; recommend needs at least {_MIN_CLIENTS} such clients. Give the clients more "
        f"examples{fewer}"
    )


def check_labels(data: FederatedData) -> None:
    """Check that the training examples do not all have the same label or target. Test examples are not looked at.

    Raises:
        DataError: If they do.
    """
    labels = data.y[data.fit.order]
    if (labels != labels[0]).any():
        return
    label = labels[0].item()
    what = "target" if data.classes is None else "label"
    value = label if data.class_names is None else data.class_names[label]
    raise DataError(
        f"All {len(labels):,} training examples of {data.name} have the same {what}, {shown(value)}: there is nothing "
        f"to learn. Check which column or array the {what}s are read from"
    )
