"""[outbox]: what applications may write."""

from __future__ import annotations

from pydantic import Field

from inorder.settings.section import Section, Whole


class OutboxSettings(Section):
    """The outbox as applications call it."""

    max_value_bytes: Whole = Field(
        default=950_000,
        ge=1,
        description=(
            "A message with a longer value is refused before anything is written. The default leaves room "
            "for key, headers and framing below the limits of a fresh client and broker, 1,000,000 and "
            "1,048,588 bytes. Raise it together with the topic's `max.message.bytes` and the client's "
            "`message.max.bytes`."
        ),
    )
