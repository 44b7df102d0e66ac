"""[publisher]: where the messages of an application go."""

from __future__ import annotations

from pydantic import Field

from inorder.outbox.publisher import BackendName
from inorder.settings.section import Section, Whole


class PublisherSettings(Section):
    """What `inorder.Publisher` does with a message. The application calls the same function either way."""

    backend: BackendName = Field(
        default="db",
        description=(
            "Where messages go. `db` writes them into the outbox table in the caller's transaction, and the relay "
            "carries them to Kafka. `kafka` sends them and waits for all acknowledgements. `kafka_async` returns at "
            "once and sends in the background; what a killed process had not sent is lost. `memory` keeps them for "
            "the assertions of a test and sends nothing. `[topics.NAME]` may say otherwise for one topic."
        ),
    )
    checks_messages: bool = Field(
        default=True,
        description=(
            "Whether messages are checked before they are sent as the pipeline will check them: against the mapping "
            "of their topic's table and against `[topics.NAME] json_schema`. What would become a dead letter is "
            "refused then. `false` sends everything that Kafka takes."
        ),
    )
    timeout_seconds: Whole = Field(
        default=30,
        ge=1,
        le=3600,
        description=(
            "Backend `kafka`: how long a call may wait for its acknowledgements. Then it raises an error that says "
            "what was sent and what was not, a few seconds later at most."
        ),
    )
    queue_messages: Whole = Field(
        default=100_000,
        ge=1,
        le=10_000_000,
        description=(
            "Backend `kafka_async`: most messages that wait to be acknowledged, for each set of producer properties. "
            "With as many waiting, calls block until there is room: nothing is dropped."
        ),
    )
    queue_megabytes: Whole = Field(
        default=256,
        ge=1,
        le=1_000_000,
        description="Backend `kafka_async`: the same bound in MiB of keys, values and headers.",
    )
    flush_seconds: Whole = Field(
        default=10,
        ge=1,
        le=3600,
        description=(
            "Backend `kafka_async`: how long `close()` and the end of the program wait for what is still queued. "
            "What is left then is not sent; it is logged as `publisher.left` and returned by `close()`."
        ),
    )
