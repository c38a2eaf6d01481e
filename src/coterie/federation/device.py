"""The device on which simulated clients run.

On a CPU, clients train one after another in a compiled loop, one call per thread, and convolutions are patches and
matrix products. On a GPU, the clients of a call train at the same time (`jax.vmap`), and convolutions are XLA's own.
Both forms run on either device; the form for GPUs has been tested on CPUs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from coterie.errors import SpecError
from coterie.federation.compilation import prepare

if TYPE_CHECKING:
    import jax

#: Setting `run.device`.
DeviceName = Literal["cpu", "gpu", "auto"]


@dataclass(frozen=True)
class Device:
    """Where compiled functions run, and in which form.

    Attributes:
        platform: Kind of device.
        batched: Whether functions have the form for GPUs.
    """

    platform: Literal["cpu", "gpu"] = "cpu"
    batched: bool = False

    def place(self) -> jax.Device | None:
        """The device in JAX; None if it is JAX's default."""
        import jax

        return None if jax.default_backend() == self.platform else jax.devices(self.platform)[0]


CPU, GPU = Device(), Device("gpu", batched=True)


def find_device(name: DeviceName) -> Device:
    """The device of a name, which becomes JAX's default device in this process; `auto`: a GPU if there is one.

    Raises:
        SpecError: If this machine has no such device.
    """
    import jax

    prepare()
    if name == "auto":
        return find_device("gpu" if _available("gpu") else "cpu")
    if not _available(name):
        raise SpecError(
            f"run.device = {name!r}, but JAX finds no {name.upper()} here. For a GPU, install JAX for it "
            "(docs.jax.dev/en/latest/installation.html); otherwise use run.device = 'cpu', or 'auto'. The environment "
            "variable JAX_PLATFORMS limits what JAX finds"
        )
    found = GPU if name == "gpu" else CPU
    if (place := found.place()) is not None:
        jax.config.update("jax_default_device", place)
    return found


def described(platform: str) -> str:
    """A device for a record, such as `cpu` or `gpu: NVIDIA A100`."""
    if platform == "cpu":
        return platform
    import jax

    return f"{platform}: {jax.devices(platform)[0].device_kind}"


def _available(platform: str) -> bool:
    import jax

    try:
        return bool(jax.devices(platform))
    except RuntimeError:
        return False
