"""`inorder pipeline run` as an application that `spark-submit` starts.

    spark-submit --master spark://… "$(python -m inorder.spark.submit)" upsert --config inorder.toml

Without arguments it prints its own path. Everything that `spark-submit` was given counts: master, name, properties.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if len(sys.argv) == 1:
        sys.stdout.write(f"{__file__}\n")
    else:
        from inorder.cli.main import main

        sys.argv[1:1] = ["pipeline", "run"]
        sys.exit(main())
