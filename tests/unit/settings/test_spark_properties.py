"""`[pipeline.spark]` takes properties as TOML writes them, and refuses what is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from inorder.model.errors import ConfigurationError
from inorder.settings import Settings


def load(tmp_path: Path, text: str) -> Settings:
    file = tmp_path / "inorder.toml"
    file.write_text(f"[pipeline.spark]\n{text}\n")
    return Settings.load(file)


def test_dotted_and_quoted_names_mean_the_same_and_values_become_text(tmp_path: Path) -> None:
    text = 'spark.executor.memory = "2g"\n"spark.executor.cores" = 2\nspark.ui.enabled = false'
    expected = {"spark.executor.memory": "2g", "spark.executor.cores": "2", "spark.ui.enabled": "false"}
    assert load(tmp_path, text).pipeline.spark == expected


def test_a_name_that_is_none_of_sparks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"'executor\.memory' is no property of Spark"):
        load(tmp_path, 'executor.memory = "2g"')
