"""What a setting needs and is not installed is named with its extra, wherever the setting is used."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from service.backtest.chart import ChartError, check_chart
from service.checkpoints import open_checkpoints
from service.contract import StorageError
from service.home import open_stores
from service.settings import Settings
from service.vector_store import open_vector_store
from tools.catalog import CatalogError, build_catalog
from tools.mysql.tool import problems


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Hide installed packages."""
    for name in request.param:
        for loaded in [each for each in sys.modules if each.partition(".")[0] == name]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("without", [("psycopg", "psycopg_pool")], indirect=True)
@pytest.mark.parametrize("opened", [open_stores, open_checkpoints])
async def test_postgresql_needs_its_extra(without: None, opened: type, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, database_url="postgresql://u:hunter2@127.0.0.1/d")
    with pytest.raises(StorageError, match=r"^SUPERBIZ_DATABASE_URL: .*superbizagent\[postgres\]$"):
        async with opened(settings):
            pass


@pytest.mark.parametrize("without", [("aiomysql", "pymysql")], indirect=True)
def test_mysql_needs_its_extra(without: None, tmp_path: Path) -> None:
    source = {"name": "shop", "dsn_env": "DSN", "tables": {"orders": ["id"]}}
    told = problems(build_catalog({"datasource": [source]}, tmp_path), {"DSN": "mysql://u:hunter2@h/d"})
    assert any("[mysql]" in each and "hunter2" not in each for each in told)


@pytest.mark.parametrize("without", [("langchain_milvus",)], indirect=True)
def test_milvus_needs_its_extra(without: None, tmp_path: Path) -> None:
    (tmp_path / "stores.py").write_text("from langchain_milvus import Milvus\n", encoding="utf-8")
    entry = {"name": "wiki", "store": "stores.py:Milvus", "score": "coverage", "high": 0.4, "reference": 0.2}
    catalog = build_catalog({"knowledge": [entry]}, tmp_path)
    with pytest.raises(CatalogError, match=r"langchain_milvus, which is not installed.*superbizagent\[milvus\]"):
        open_vector_store(catalog, catalog.knowledge[0])


@pytest.mark.parametrize("without", [("matplotlib",)], indirect=True)
def test_a_chart_needs_its_extra(without: None, tmp_path: Path) -> None:
    with pytest.raises(ChartError, match=r"superbizagent\[charts\]"):
        check_chart(tmp_path / "chart.svg")
