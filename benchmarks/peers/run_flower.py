"""A round of Flower's simulation engine: FedAvg, PyTorch clients with a DataLoader, one core per client."""

from __future__ import annotations

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from pytorch_loops import batches, module, tensors, train
from worker import clients, seconds, serve, steps

CLIENTS = 20

client_app = ClientApp()
server_app = ServerApp()


@client_app.train()
def fit(message, context):
    torch.set_num_threads(1)
    config = message.content["config"]
    model = module(config["model"])
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = clients(config["clients"])[context.node_config["partition-id"]]
    train(model, batches("dataloader", *tensors(x, y), config["batch_size"]), config["epochs"], config["learning_rate"])
    content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": len(y)})}
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def main(grid, context):
    def run(request):
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=CLIENTS, min_available_nodes=CLIENTS)
        start, config = ArrayRecord(module(request["model"]).state_dict()), ConfigRecord(request)
        return seconds(lambda: strategy.start(grid, start, num_rounds=1, train_config=config)), steps(request)

    serve(run)


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, client_app, num_supernodes=CLIENTS, backend_config=resources)
