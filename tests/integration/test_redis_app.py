"""The assembled system over Redis: the setting chooses the store, and what it cannot use is named (R49, R155)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from service.app import open_app
from service.diagnosis import diagnose
from service.doctor import Finding, examine
from service.home import open_canonical
from service.settings import Settings, SettingsError, load_settings
from tests.data import ROOT
from tests.redis_server import SERVER_URL, leased_database, line
from tools.canonical.redis import RedisCanonicalStore
from tools.canonical.sql import SqlCanonicalStore

SHOP = ROOT / "examples" / "shop" / "superbiz.toml"


@pytest.fixture
def database() -> Iterator[int]:
    with leased_database() as number:
        yield number


def settings(home: Path, redis_url: str | None) -> Settings:
    return load_settings(home=home, catalog=SHOP, redis_url=redis_url)


async def redis_finding(chosen: Settings) -> Finding:
    (finding,) = [finding for finding in await examine(chosen, {}) if finding.subject == "canonical store"]
    return finding


async def test_r49_the_setting_chooses_the_store(database: int, tmp_path: Path) -> None:
    async with open_canonical(settings(tmp_path, None)) as store:
        assert isinstance(store, SqlCanonicalStore)
    async with open_canonical(settings(tmp_path, f"{SERVER_URL}/{database}")) as store:
        assert isinstance(store, RedisCanonicalStore)


async def test_r14_r67_an_offline_diagnosis_keeps_its_records_in_redis_for_the_configured_time(
    database: int, tmp_path: Path
) -> None:
    chosen = settings(tmp_path, f"{SERVER_URL}/{database}").model_copy(update={"canonical_ttl_seconds": 500.0})
    async with open_app(chosen) as app:
        result = await diagnose(app, "why is checkout failing?")
        run_id = result.run_id
    with redis.Redis.from_url(f"{SERVER_URL}/{database}") as server:
        keys = list(server.scan_iter(f"harness:canonical:{run_id}:*"))
        assert keys
        assert all(400 < server.ttl(key) <= 500 for key in keys)
        assert all(server.get(key).startswith(b"READY\n") for key in keys)


async def test_the_doctor_writes_to_redis_and_says_so(database: int, tmp_path: Path) -> None:
    finding = await redis_finding(settings(tmp_path, f"{SERVER_URL}/{database}"))
    assert finding.ok, finding.text
    with redis.Redis.from_url(f"{SERVER_URL}/{database}") as server:
        assert len(server.keys("harness:canonical:*:doctor")) == 1


async def test_the_doctor_names_a_redis_that_is_away_without_its_address(tmp_path: Path) -> None:
    async with line() as way:
        port = way.port
    finding = await redis_finding(settings(tmp_path, f"redis://:hunter2@127.0.0.1:{port}"))
    assert finding.broken
    assert finding.text == "Redis of SUPERBIZ_REDIS_URL: canonical store: no answer (ConnectionError)"


async def test_a_tls_file_that_is_missing_is_named_before_anything_starts(tmp_path: Path) -> None:
    chosen = settings(tmp_path, f"rediss://h?ssl_ca_certs={tmp_path}/hunter2.pem")
    with pytest.raises(SettingsError, match=r"^SUPERBIZ_REDIS_URL: ssl_ca_certs: no such file") as caught:
        async with open_canonical(chosen):
            pass
    assert "hunter2" not in str(caught.value)


def test_r127_the_url_is_in_no_repr(tmp_path: Path) -> None:
    chosen = settings(tmp_path, "redis://user:hunter2@h")
    assert "hunter2" not in repr(chosen) + str(chosen) + chosen.model_dump_json()
