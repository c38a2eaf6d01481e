"""The server half. The keys of the run config in pyproject.toml replace settings of this spec."""

from coterie.flower import server_app

SPEC = {
    "data": {"name": "digits", "classes": 10},
    "method": {"name": "flexcfl", "clusters": 2},
    "local": {"epochs": 2},
}


def show(row):
    """Print the accuracy after each round."""
    if "accuracy" in row:
        print(f"round {row['t']}: accuracy {row['accuracy']['weighted']:.3f}", flush=True)


app = server_app(SPEC, on_round=show, on_status=lambda text: print(text, flush=True))
