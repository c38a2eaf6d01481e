"""The client half: each node has one part of the digits, every other one in inverted gray levels."""

from coterie.data import load
from coterie.flower import client_app


def load_data(context):
    """The part of the digits with the number `partition-id`; in your app, read the files of this machine instead."""
    place, parts = int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])
    data = load("digits", clients=parts, partition="inverted", clusters=2, seed=int(context.run_config["seed"]))
    return data.only(data.clients[place])


app = client_app(load_data)
