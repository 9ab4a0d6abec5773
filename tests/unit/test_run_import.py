"""Bundles into the SQL stores: the same run comes out again, another one of the same id never gets in (R67)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from service.replay.bundle import Bundle, Entry
from service.replay.export import export_run
from service.replay.importing import import_bundle
from service.replay.text import BundleError, read_bundle, write_bundle
from service.store.clock import FixedClock
from service.store.journal import SqlJournal
from service.store.runs import SqlRunStore
from tests.stores import KINDS, database

RECORDINGS = Path(__file__).parent.parent / "recordings"
NOW = 1_800_000_000.0
Stores = tuple[SqlRunStore, SqlJournal]


@pytest.fixture(params=KINDS)
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stores]:
    async with database(request.param, tmp_path) as engine:
        yield SqlRunStore(engine), SqlJournal(engine, FixedClock(NOW))


def recording(name: str) -> Bundle:
    return read_bundle((RECORDINGS / f"{name}.json").read_bytes())


def changed(bundle: Bundle, kind: str, **fields: Any) -> Bundle:
    """Another run under the same id: valid, with other values in the first entry of a kind."""
    entries = list(bundle.entries)
    place = next(number for number, each in enumerate(entries) if each.kind == kind)
    entries[place] = replace(entries[place], payload={**entries[place].payload, **fields})
    other = Bundle.of(bundle.run_id, [Entry(each.kind, each.key, each.payload) for each in entries])
    return read_bundle(write_bundle(other).encode())


async def exported(stores: Stores, run_id: str) -> str:
    record = await stores[0].get(run_id)
    assert record is not None
    return write_bundle(await export_run(record, stores[1]))


@pytest.mark.parametrize("name", ["probe-stop", "probe-host-cancel", "probe-fork", "chat-diagnosis"])
async def test_r67_an_imported_run_is_exported_byte_for_byte(stores: Stores, name: str) -> None:
    bundle = recording(name)
    assert await import_bundle(bundle, *stores, NOW) is True
    assert await exported(stores, bundle.run_id) == write_bundle(bundle)
    assert await import_bundle(bundle, *stores, NOW + 60) is False, "it is here already"
    assert await exported(stores, bundle.run_id) == write_bundle(bundle)
    assert len(await stores[0].runs(10)) == 1


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("run", {"query": "another question?"}), ("agent_result", {"agent_result": None}), ("trace", {"at": 1.5})],
)
async def test_r67_another_run_of_the_same_id_is_refused_and_the_first_stays(
    stores: Stores, kind: str, fields: dict[str, Any]
) -> None:
    bundle = recording("probe-stop")
    await import_bundle(bundle, *stores, NOW)
    with pytest.raises(BundleError, match="exists here with other content"):
        await import_bundle(changed(bundle, kind, **fields), *stores, NOW)
    assert await exported(stores, bundle.run_id) == write_bundle(bundle)


async def test_r67_an_import_that_was_interrupted_is_completed_by_the_same_file_alone(stores: Stores) -> None:
    bundle = recording("probe-stop")

    class Interrupted(Exception):
        pass

    class Runs:
        async def create(self, run: object) -> bool:
            raise Interrupted

        async def get(self, run_id: str) -> None:
            return None

    with pytest.raises(Interrupted):
        await import_bundle(bundle, Runs(), stores[1], NOW)
    assert await stores[0].runs(10) == ()
    with pytest.raises(BundleError, match="holds other entries"):
        await import_bundle(changed(bundle, "step", step="Something else."), *stores, NOW)
    assert await stores[0].runs(10) == (), "what is not whole is not listed"
    assert await import_bundle(bundle, *stores, NOW) is True
    assert await exported(stores, bundle.run_id) == write_bundle(bundle)
