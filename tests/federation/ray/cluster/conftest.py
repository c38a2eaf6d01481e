"""A Ray instance of this machine for each module, with room for six workers, which is ended in any case."""

from __future__ import annotations

import os

import pytest

os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # read when ray is imported: listen on the loopback address only
pytest.importorskip("ray", reason="needs the extra ray; make test-all runs it in .venv-ray")


@pytest.fixture(scope="module")
def local_ray():
    """Ray on this machine."""
    import ray

    from coterie.federation.ray.cluster import connect
    from coterie.federation.ray.settings import RaySettings

    connect(RaySettings(workers=6))
    yield ray
    ray.shutdown()
