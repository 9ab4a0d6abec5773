"""The canonical store over TLS, with and without a client certificate, and over a server that restarts (R49, R65)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.integration.test_redis_canonical import opened
from tests.redis_server import free_port, own_server
from tests.unit.test_canonical_contract import ready, started
from tools.canonical.redis import RedisCanonicalStore
from tools.canonical.store import CanonicalStoreUnavailable
from tools.contract import CanonicalRecord


def openssl(folder: Path, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        pytest.skip("openssl is not installed")
    subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True, timeout=30)


def certificates(folder: Path) -> None:
    """A CA, another CA nobody trusts, a server certificate for localhost alone, a client certificate."""
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    for ca in ("ca", "other"):
        openssl(
            folder,
            "req",
            "-x509",
            *key,
            "-keyout",
            f"{ca}.key",
            "-out",
            f"{ca}.pem",
            "-days",
            "2",
            "-subj",
            f"/CN={ca}",
        )
    (folder / "server.ext").write_text("subjectAltName=DNS:localhost")
    (folder / "client.ext").write_text("extendedKeyUsage=clientAuth")
    for name in ("server", "client"):
        openssl(folder, "req", *key, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        openssl(
            folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
            "-out", f"{name}.pem", "-days", "2", "-extfile", f"{name}.ext",
        )  # fmt: skip
    openssl(folder, "pkey", "-in", "client.key", "-aes256", "-passout", "pass:hunter2", "-out", "locked.key")


@dataclass(frozen=True)
class TlsServer:
    folder: Path
    port: int

    def url(self, host: str = "localhost", **options: str) -> str:
        files = {name: value if name == "ssl_password" else str(self.folder / value) for name, value in options.items()}
        query = "&".join(f"{name}={quote(value)}" for name, value in files.items())
        return f"rediss://:hunter2@{host}:{self.port}?{query}" if query else f"rediss://:hunter2@{host}:{self.port}"


def serve(folder: Path, clients: str) -> Iterator[TlsServer]:
    certificates(folder)
    port = free_port()
    files = [f"--tls-cert-file {folder}/server.pem", f"--tls-key-file {folder}/server.key"]
    options = " ".join([*files, f"--tls-ca-cert-file {folder}/ca.pem", f"--tls-port {port}", "--port 0"]).split()
    arguments = [*options, "--tls-auth-clients", clients, "--requirepass", "hunter2"]
    with own_server(folder, *arguments, port=port):
        yield TlsServer(folder, port)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    yield from serve(tmp_path_factory.mktemp("tls"), "no")


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    """A server that asks for a client certificate."""
    yield from serve(tmp_path_factory.mktemp("mtls"), "yes")


async def stored(url: str, call: str) -> bool:
    async with opened(url, call_seconds=3) as store:
        record = started(call=call)
        await store.begin(record)
        assert await store.finish(ready(record, raw_response="字" * 100_000))
        return await store.get("run-1", call) == ready(record, raw_response="字" * 100_000)


async def refused(url: str) -> str:
    async with opened(url, call_seconds=3) as store:
        with pytest.raises(CanonicalStoreUnavailable) as caught:
            await store.begin(started())
        return str(caught.value)


async def test_records_travel_over_tls_to_a_server_of_the_named_ca(server: TlsServer) -> None:
    assert await stored(server.url(ssl_ca_certs="ca.pem"), "call_tls")


async def test_r65_a_server_that_cannot_prove_itself_is_unavailable(server: TlsServer) -> None:
    wrong_ca = server.url(ssl_ca_certs="other.pem")
    system_ca = server.url()
    wrong_name = server.url(host="127.0.0.1", ssl_ca_certs="ca.pem")
    no_file = server.url(ssl_ca_certs="absent.pem")
    no_tls = server.url().replace("rediss://", "redis://")
    for url in (wrong_ca, system_ca, wrong_name, no_file, no_tls):
        said = await refused(url)
        assert said.startswith("canonical store: no answer (")
        assert "hunter2" not in said
        assert str(server.folder) not in said


async def test_a_client_certificate_opens_a_server_that_asks_for_one(strict_server: TlsServer) -> None:
    own = {"ssl_ca_certs": "ca.pem", "ssl_certfile": "client.pem"}
    assert await stored(strict_server.url(**own, ssl_keyfile="client.key"), "call_mtls")
    assert await stored(strict_server.url(**own, ssl_keyfile="locked.key", ssl_password="hunter2"), "call_locked")
    await refused(strict_server.url(ssl_ca_certs="ca.pem"))
    await refused(strict_server.url(**own, ssl_keyfile="locked.key", ssl_password="wrong"))


async def test_records_travel_over_a_socket_file(tmp_path: Path) -> None:
    port = free_port()
    path = tmp_path / "r.sock"
    with own_server(tmp_path, "--port", str(port), "--unixsocket", str(path), port=port):
        assert await stored(f"unix://{path}?db=3", "call_unix")


async def test_r65_a_server_that_restarts_empty_has_no_record_and_the_store_recovers(tmp_path: Path) -> None:
    port = free_port()
    async with opened(f"redis://127.0.0.1:{port}") as store:
        record = started()
        with own_server(tmp_path, "--port", str(port), port=port):
            await store.begin(record)
        with pytest.raises(CanonicalStoreUnavailable):
            await store.finish(ready(record))
        with own_server(tmp_path, "--port", str(port), port=port):
            assert await store.get("run-1", "call_1") is None
            assert not await store.finish(ready(record))
            assert await store.begin(record) == record
            assert await store.finish(ready(record))


async def test_r65_a_server_that_restarts_with_its_log_has_lost_nothing(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", str(port), "--appendonly", "yes", "--appendfsync", "always")
    async with opened(f"redis://127.0.0.1:{port}") as store:
        done, record = started(call="call_0"), started()
        with own_server(tmp_path, *options, port=port):
            await store.begin(done)
            await store.finish(ready(done))
            await store.begin(record)
        with own_server(tmp_path, *options, port=port):
            await asyncio.sleep(0.05)  # the loop stood still while the server was away; let it see the cut
            assert await store.get("run-1", "call_0") == ready(done)
            assert await store.finish(ready(record))


async def test_r65_a_full_server_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    port = free_port()
    options = ("--port", str(port), "--maxmemory", "3mb", "--maxmemory-policy", "noeviction")
    with own_server(tmp_path, *options, port=port):
        async with opened(f"redis://127.0.0.1:{port}") as store:
            records = [started(call=f"call_{index}") for index in range(30)]
            outcomes = [await filled(store, record) for record in records]
            assert "OutOfMemoryError" in outcomes[-1]
            kept = [record for record, outcome in zip(records, outcomes, strict=True) if outcome == "stored"]
            assert kept
            for record in kept:
                assert await store.get("run-1", record.tool_call_id) is not None


async def filled(store: RedisCanonicalStore, record: CanonicalRecord) -> str:
    try:
        await store.begin(record)
        assert await store.finish(ready(record, raw_response="x" * 200_000))
    except CanonicalStoreUnavailable as error:
        return str(error)
    return "stored"
