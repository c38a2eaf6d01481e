# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
# ---

# %% [markdown]
# # A federation of three machines
#
# Three hospitals train together; a server without data coordinates them. Here all four are processes on one machine,
# connected over the loopback interface, with the same certificates, keys and commands as on real hosts. Each has a
# folder of its own, and only what would be sent between machines is copied from one folder to another. Needs the
# extra `network`: `pip install 'coterie[network]'`.

# %% [markdown]
# ## The hospitals' data
#
# Each hospital has one file, which never leaves its folder. Two see digits upright, the third one upside down.

# %%
from pathlib import Path

import numpy as np

import coterie

digits = coterie.data.load("digits")
for hospital, client in {"hospital-a": "00", "hospital-b": "04", "hospital-c": "02"}.items():
    folder = Path(hospital)
    folder.mkdir()
    x, y = digits.examples(client, "fit")
    np.savez(folder / "data.npz", x=x, y=y)
    print(hospital, x.shape)

# %% [markdown]
# ## Server: a certificate authority of your own
#
# `--host` is the name under which clients reach the server; on real machines it would be something like
# `fl.example.org`. Every client gets the certificate `ca.crt`.

# %% language="bash"
# mkdir server && cd server
# coterie keys init --host 127.0.0.1
# for hospital in hospital-a hospital-b hospital-c; do cp federation/ca.crt ../$hospital/; done

# %% [markdown]
# ## Each hospital: a key pair
#
# The private key stays where it was made. The public key goes to the server, which admits it.

# %% language="bash"
# for hospital in hospital-a hospital-b hospital-c; do
#     (cd $hospital && coterie keys client $hospital > key.txt && cp $hospital.pub ../server/)
# done
# cd server
# coterie admit hospital-a.pub
# coterie admit hospital-b.pub
# coterie admit hospital-c.pub
# coterie clients

# %% [markdown]
# ## The run
#
# The server waits until three clients have joined, and then runs IFCA for three rounds. Each client connects to the
# server and needs no open port. Without `--yes`, a client shows what the method reveals and asks for consent. `--once`
# ends the client when it has received its model.

# %% language="bash"
# (cd server && coterie serve --method ifca --clusters 2 --set method.restarts=3 --rounds 3 --clients 3 \
#     --host 127.0.0.1 --port 9443 --out runs/hospitals > result.txt 2> log.txt) &
# for hospital in hospital-a hospital-b hospital-c; do
#     (cd $hospital && coterie join --server 127.0.0.1:9443 --key $hospital.key --data data.npz --yes --once \
#         > joined.txt 2> log.txt) &
# done
# wait
# cat server/result.txt

# %% [markdown]
# ## What a client saw
#
# A client logs every request and what it sent: here the choice of a model, losses, and the trained parameters, but
# never an example.

# %% language="bash"
# cut -d' ' -f2- hospital-c/log.txt | tail -n 10

# %% [markdown]
# ## The models
#
# Each hospital has received the model of its cluster.

# %%
for hospital in ("hospital-a", "hospital-b", "hospital-c"):
    (received,) = Path(hospital).rglob("model.safetensors")
    model = coterie.ServedModel.load(received)
    data = np.load(Path(hospital) / "data.npz")
    right = (model.predict(data["x"]) == data["y"]).mean()
    print(f"{hospital}: {right:.0%} of its own examples are predicted correctly after three rounds")

# %% [markdown]
# ## Where next
#
# - Three real hosts, services, containers, failures, the threat model: [run a federation between
#   machines](../deploy.md)
# - What each method reveals to the server: [methods compared](../explanation/methods-compared.md)
# - With Flower's own tools: [Flower app](../how-to/flower-app.md)
