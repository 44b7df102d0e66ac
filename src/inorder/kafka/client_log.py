"""Where the client library's own messages go: to a logger of ours instead of stderr.

It repeats each failed connection many times a second; the errors that we raise say it once. So the logger is silent
until somebody gives it a handler.
"""

from __future__ import annotations

import logging

CLIENT_LOG = logging.getLogger("inorder.kafka.librdkafka")
CLIENT_LOG.addHandler(logging.NullHandler())
CLIENT_LOG.propagate = False
