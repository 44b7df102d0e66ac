"""A broker that makes no topics by itself and asks for rights: where topics can be missing, or closed to us."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # the stubs do not re-export all of them
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from inorder.embedded import Kafka
from inorder.embedded.server import free_port

RULES = """
auto.create.topics.enable=false
sasl.enabled.mechanisms=PLAIN
listener.name.users.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required user_relay="relay";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:ANONYMOUS
"""


class StrictKafka(Kafka):
    """Who comes without a name may do everything; the user `relay` has a listener of its own, and rights."""

    _users_port = 0

    def configure(self) -> None:
        super().configure()
        self._users_port = self._users_port or free_port()
        plain, users = f"PLAINTEXT://{self.bootstrap}", f"USERS://127.0.0.1:{self._users_port}"
        settings = self._properties.read_text(encoding="utf-8")
        settings = settings.replace(f"listeners={plain}", f"listeners={users},{plain}")
        settings = settings.replace("protocol.map=", "protocol.map=USERS:SASL_PLAINTEXT,")
        self._properties.write_text(settings + RULES, encoding="utf-8")

    @property
    def as_relay(self) -> dict[str, object]:
        """How the user `relay` comes in."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._users_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": "relay",
            "sasl.password": "relay",
        }

    @property
    def as_nobody(self) -> dict[str, object]:
        """How those come in who may do everything."""
        return {"bootstrap.servers": self.bootstrap}

    def allow_only(self, topic: str, *operations: AclOperation) -> None:
        """The user `relay` may do this with a topic and nothing else; with no operation, not even see it."""
        admin = self._admin()
        rules = [(operation, AclPermissionType.ALLOW) for operation in operations]
        for operation, permission in rules or [(AclOperation.ALL, AclPermissionType.DENY)]:
            name = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
            binding = AclBinding(*name, "User:relay", "*", operation, permission)
            admin.create_acls([binding])[binding].result(60)

    def allow_all(self, topic: str) -> None:
        """No rules for a topic any more."""
        name = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL)
        rules = AclBindingFilter(*name, "User:relay", "*", AclOperation.ANY, AclPermissionType.ANY)
        admin = self._admin()  # kept by name: its answers die with it
        admin.delete_acls([rules])[rules].result(60)

    @contextmanager
    def without_create(self) -> Iterator[None]:
        """The user `relay` may create no topics meanwhile, existing ones included: CreateTopics is refused."""
        admin = self._admin()
        # The permission for the cluster, which this client calls a broker, or for the topic: either would do.
        places = (ResourceType.BROKER, "kafka-cluster"), (ResourceType.TOPIC, "*")
        whose = (ResourcePatternType.LITERAL, "User:relay", "*", AclOperation.CREATE, AclPermissionType.DENY)
        for kind, name in places:
            rule = AclBinding(kind, name, *whose)
            admin.create_acls([rule])[rule].result(60)
        yield
        for kind, name in places:
            rules = AclBindingFilter(kind, name, *whose)
            admin.delete_acls([rules])[rules].result(60)

    def delete(self, topic: str) -> None:
        """Deletes a topic with all that is in it."""
        admin = self._admin()
        admin.delete_topics([topic])[topic].result(60)

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap})
