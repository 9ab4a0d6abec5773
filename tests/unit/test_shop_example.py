from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from service.offline.checks import parse_checks
from tools.catalog import load_catalog

SHOP = Path(__file__).resolve().parents[2] / "examples" / "shop"


def test_the_data_regenerates_byte_for_byte(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("make_data", SHOP / "make_data.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.write(tmp_path)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file())
    assert [str(path) for path in made] == [
        "logs/checkout.jsonl",
        "logs/deploy.log",
        "logs/gateway.log",
        "logs/payment.log",
        "shop.db",
    ]
    for path in made:
        assert (tmp_path / path).read_bytes() == (SHOP / path).read_bytes(), path


def test_every_runbook_fits_one_chunk_and_names_what_exists() -> None:
    catalog = load_catalog(SHOP / "superbiz.toml")
    topics, sources = {t.name for t in catalog.topics}, {d.name for d in catalog.datasources}
    files = sorted((SHOP / "runbooks").glob("*.md"))
    assert 6 <= len(files) <= 10
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert len(text) < 1200, path.name
        for check in parse_checks(text):
            assert check.target in (topics if check.kind == "logs" else sources), path.name


@pytest.mark.parametrize("language", ["zh", "en"])
def test_both_languages_have_the_same_checks(language: str) -> None:
    other = "en" if language == "zh" else "zh"
    mine = parse_checks((SHOP / "runbooks" / f"checkout-failures.{language}.md").read_text(encoding="utf-8"))
    theirs = parse_checks((SHOP / "runbooks" / f"checkout-failures.{other}.md").read_text(encoding="utf-8"))
    assert len(mine) == 6
    assert [(c.kind, c.target, c.query, c.expect_match) for c in mine] == [
        (c.kind, c.target, c.query, c.expect_match) for c in theirs
    ]
