"""Kafka and Redis as production has them: users, TLS, and for each user the rights that docs/security.md gives him."""

import argparse
import os
import re
import secrets
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from redis import Redis
from redis.exceptions import RedisError

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import Child, ServiceError, free_port
from shared.errors import BrokerUnavailable
from shared.kafka import create_topics
from shared.settings.kafka import KafkaSettings
from shared.settings.redis import RedisSettings
from tests.support.certificates import Authority
from tests.support.system import System, eventually

DOCUMENT: Final = Path(__file__).parents[2] / "docs" / "security.md"
OPERATOR: Final = "CN=operator"
USERS: Final = ("gateway", "worker", "recorder")
PARTITIONS: Final = 3


@dataclass(slots=True, kw_only=True)
class SecuredRedis:
    """Only over TLS. The documented users, and `admin` for the test."""

    folder: Path
    authority: Authority
    passwords: Mapping[str, str]
    port: int = field(default_factory=free_port)
    _server: Child | None = None

    def start(self) -> None:
        certificate, key = self.authority.issue("redis")
        lines = [
            "bind 127.0.0.1",
            "port 0",
            f"tls-port {self.port}",
            f"tls-cert-file {certificate}",
            f"tls-key-file {key}",
            f"tls-ca-cert-file {self.authority.ca}",
            "tls-auth-clients no",
            'save ""',
            f"user admin on >{self.passwords['admin']} ~* &* +@all",
        ]
        self._server = Child.start([str(shutil.which("redis-server")), "-"], stdin="\n".join(lines).encode())
        if not self._server.wait_until(self._listens, timeout_s=10.0):
            pytest.fail("redis-server with TLS did not start. Type: apt-get install redis-server", pytrace=False)
        with self.admin() as admin:
            for line in DOCUMENT.read_text().splitlines():
                if line.startswith("ACL SETUSER"):
                    for user in USERS:
                        line = line.replace(f"{user.upper()}_PASSWORD", self.passwords[user])  # noqa: PLW2901
                    admin.execute_command(*line.split())

    def _listens(self) -> bool:
        try:
            with self.admin() as admin:
                return bool(admin.ping())
        except RedisError:
            return False

    def admin(self) -> Redis:
        return Redis(
            host="127.0.0.1",
            port=self.port,
            username="admin",
            password=self.passwords["admin"],
            ssl=True,
            ssl_ca_certs=str(self.authority.ca),
        )

    @property
    def url(self) -> str:
        return f"rediss://admin:{self.passwords['admin']}@127.0.0.1:{self.port}/0?ssl_ca_certs={self.authority.ca}"

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop(timeout_s=2.0)


@dataclass(slots=True, kw_only=True)
class Secured:
    """One broker with four listeners: SASL_SSL for the processes, SSL for the operator with a certificate, and the
    brokers' plaintext one, on which the test has superuser rights; one Redis."""

    folder: Path
    prefix: str
    authority: Authority
    passwords: Mapping[str, str]
    broker: KafkaBroker
    redis: SecuredRedis
    sasl_port: int = field(default_factory=free_port)
    tls_port: int = field(default_factory=free_port)

    def kafka(self, user: str, *, password: str | None = None, **changed: Any) -> KafkaSettings:
        """`password`: another than the user has."""
        if password is not None:
            changed["password_file"] = self.password_file("nobody")
            changed["password_file"].write_text(password)
        settings: dict[str, Any] = {
            "bootstrap_servers": f"127.0.0.1:{self.sasl_port}",
            "security": "sasl_ssl",
            "username": user,
            "password_file": self.password_file(user),
            "tls_ca": self.authority.ca,
            "topic_prefix": self.prefix,
        }
        return KafkaSettings.model_validate(
            {name: value for name, value in (settings | changed).items() if value is not None}
        )

    def operator(self) -> KafkaSettings:
        certificate, key = self.authority.issue(OPERATOR.removeprefix("CN="))
        return self.kafka("operator", **self._by_certificate(), tls_cert=certificate, tls_key=key)

    def _by_certificate(self) -> dict[str, Any]:
        address = f"127.0.0.1:{self.tls_port}"
        return {"bootstrap_servers": address, "security": "ssl", "username": None, "password_file": None}

    def redis_settings(self, user: str, **changed: Any) -> RedisSettings:
        settings = {
            "url": f"rediss://{user}@127.0.0.1:{self.redis.port}/0",
            "password_file": self.password_file(user),
            "tls_ca": self.authority.ca,
            "timeout_ms": 2_000,
        }
        return RedisSettings(**(settings | changed))

    def password_file(self, user: str) -> Path:
        return self.folder / f"{user}.password"

    def environment(self, user: str) -> dict[str, Any]:
        """Settings of that user's processes."""
        return {
            "kafka__bootstrap_servers": f"127.0.0.1:{self.sasl_port}",
            "kafka__security": "sasl_ssl",
            "kafka__username": user,
            "kafka__password_file": self.password_file(user),
            "kafka__tls_ca": self.authority.ca,
            "redis__url": f"rediss://{user}@127.0.0.1:{self.redis.port}/0",
            "redis__password_file": self.password_file(user),
            "redis__tls_ca": self.authority.ca,
        }

    async def start(self) -> None:
        for user in USERS:
            self.password_file(user).write_text(self.passwords[user] + "\n")
        printing = self._print_acls()
        self.broker.settings = self._listeners()
        try:
            self.broker.start()
        except ServiceError as error:
            pytest.fail(f"{error}", pytrace=False)
        self.redis.start()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
        users = [UserScramCredentialUpsertion(user, info, self.passwords[user].encode()) for user in USERS]
        printed, _ = printing.communicate(timeout=60)
        assert printing.returncode == 0
        granted = admin.create_acls(
            [binding for line in printed.splitlines() if line[0] != "#" for binding in _bindings(line)]
        )
        for future in (*admin.alter_user_scram_credentials(users).values(), *granted.values()):
            future.result(timeout=10)
        await eventually(self._made_topics)

    def _print_acls(self) -> "subprocess.Popen[str]":
        command = [
            "topics",
            "acls",
            "--gateway-user",
            "gateway",
            "--worker-user",
            "worker",
            "--operator-user",
            OPERATOR,
            "--recorder-user",
            "recorder",
        ]
        env = {"KAFKA__TOPIC_PREFIX": self.prefix}
        return subprocess.Popen(
            [sys.executable, "-m", "ops.cli", *command],
            env={**os.environ, **{f"REPLYLINE_{name}": value for name, value in env.items()}},
            stdout=subprocess.PIPE,
            text=True,
        )

    async def _made_topics(self) -> bool:
        """By the operator, once the broker knows what he may do."""
        kafka = self.operator()
        try:
            await create_topics(kafka, kafka.topics.all(request_partitions=PARTITIONS, reply_partitions=PARTITIONS))
        except BrokerUnavailable:
            return False
        return True

    def _listeners(self) -> dict[str, str]:
        certificate, key = self.authority.issue("kafka")
        both = self.folder / "kafka.pem"
        both.write_bytes(key.read_bytes() + certificate.read_bytes())
        public = (
            f"PLAINTEXT://127.0.0.1:{self.broker.port},SASL_SSL://127.0.0.1:{self.sasl_port},"
            f"SSL://127.0.0.1:{self.tls_port}"
        )
        return {
            "listeners": f"{public},CONTROLLER://127.0.0.1:{self.broker.controller_port}",
            "advertised.listeners": public,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,CONTROLLER:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(both),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.authority.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }

    def system(self) -> System:
        """Gateways and workers here, each with the settings of `environment`."""
        folder = self.folder / f"system-{secrets.token_hex(4)}"
        folder.mkdir()
        redis: Any = SimpleNamespace(url=self.redis.url, stop=lambda: None)  # it serves other tests, too
        return System(bootstrap=self.broker.bootstrap, redis=redis, prefix=self.prefix, folder=folder)

    def stop(self) -> None:
        self.broker.stop()
        self.redis.stop()


@asynccontextmanager
async def secured_services(folder: Path, prefix: str) -> AsyncIterator[Secured]:
    authority = Authority(folder, "authority")
    passwords = {user: secrets.token_urlsafe(12) for user in (*USERS, "admin")}
    services = Secured(
        folder=folder,
        prefix=prefix,
        authority=authority,
        passwords=passwords,
        broker=KafkaBroker(port=free_port(), controller_port=free_port()),
        redis=SecuredRedis(folder=folder, authority=authority, passwords=passwords),
    )
    try:
        await services.start()
        yield services
    finally:
        services.stop()


def _bindings(line: str) -> list[AclBinding]:
    """Return the grants of a printed command."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    for option in ("bootstrap-server", "command-config", "allow-principal", "operation", "resource-pattern-type"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--add", action="store_true", required=True)
    parser.add_argument("--topic", action="append", default=[])
    parser.add_argument("--group", action="append", default=[])
    program, *arguments = shlex.split(line)
    assert program == "kafka-acls.sh"
    told = parser.parse_args(arguments)
    names = [(ResourceType.TOPIC, name) for name in told.topic] + [(ResourceType.GROUP, name) for name in told.group]
    assert names
    return [
        AclBinding(
            kind,
            name,
            ResourcePatternType[told.resource_pattern_type.upper()],
            told.allow_principal,
            "*",
            AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", told.operation).upper()],
            AclPermissionType.ALLOW,
        )
        for kind, name in names
    ]
