"""Settings of journals that are fine alone and wrong together; each refusal names both keys."""

from __future__ import annotations

from collections.abc import Iterator

from inorder.settings.journal import JournalSettings


def of_journal(journal: JournalSettings) -> Iterator[str]:
    """A sentence for each pair of settings that cannot both hold."""
    topic = journal.replicated_topic
    for prefix in journal.topic_prefixes:
        if topic.startswith(prefix):
            yield (
                f"journal.replicated_topic = {topic!r} begins with {prefix!r} of journal.topic_prefixes, so it would "
                "itself be taken for a topic of journals; give it another name."
            )
    wait = journal.wait_for_store_ms
    if wait and not topic:
        yield f"journal.wait_for_store_ms = {wait} needs journal.replicated_topic, which is empty."
    if wait >= journal.timeout_seconds * 1000:
        yield (
            f"journal.wait_for_store_ms = {wait} leaves a read no time for Kafka within "
            f"journal.timeout_seconds = {journal.timeout_seconds}."
        )
