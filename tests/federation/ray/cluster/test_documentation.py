"""The cluster files of the how-to page, checked with Ray's own rules."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

pytestmark = pytest.mark.exhaustive

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "ray.md"


def test_the_file_for_ray_up_follows_the_schema_of_ray():
    from ray.autoscaler._private.util import prepare_config, validate_config

    cluster, values = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    config = prepare_config(yaml.safe_load(cluster))
    validate_config(config)
    assert config["max_workers"] == 2
    assert yaml.safe_load(values)["worker"]["replicas"] == 8
