"""[relay.lease]: the lease of a shard, with leadership `redis` or `database`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from inorder.settings.section import Section, Whole

# What both a column and a key of Redis can hold.
_Name = Annotated[str, StringConstraints(max_length=200, pattern=r"^[A-Za-z0-9._:/@-]*$")]

MARGIN_PARTS = 6
"""An owner stops this part of the lifetime before the lease ends."""


class LeaseSettings(Section):
    """The lease that says who works, with `relay.leadership` `redis` or `database`; give all instances the same."""

    lifetime_ms: Whole = Field(
        default=3000,
        ge=300,
        le=600_000,
        description=(
            "After this long without an extension the lease is free for the next instance. Its owner stops a "
            f"{MARGIN_PARTS}th of it earlier, counted from before it asked for the last extension. Shorter ones hand "
            "over sooner after a crash; longer ones bear a longer pause of the server."
        ),
    )
    race_interval_ms: Whole = Field(
        default=1000,
        ge=10,
        le=600_000,
        description=(
            "How often an owner extends the lease and the others try to win it. It must leave room in `lifetime_ms` "
            "for an extension that comes late."
        ),
    )
    check_interval_ms: Whole = Field(
        default=100,
        ge=1,
        le=60_000,
        description=(
            "How often an instance looks whether it leads, from memory; only every `race_interval_ms` the server is "
            "asked."
        ),
    )
    name: _Name = Field(
        default="",
        description=(
            "What the lease is called: in Redis the key is `inorder:<name>:leader`, in the database it is the name in "
            "`inorder_lease`. With several shards each has `.` and its number behind it. Empty means `<group>.<shard>`."
        ),
    )
    owner: _Name = Field(
        default="",
        description=(
            "What the lease says of its owner. Empty is host name, process id and a random part, `host` the host name, "
            "anything else is taken as it is. It must differ between instances that run at the same time: with `host` "
            "there may be one for each host name."
        ),
    )

    @property
    def margin_ms(self) -> float:
        """How long before the end of the lease its owner stops."""
        return self.lifetime_ms / MARGIN_PARTS
