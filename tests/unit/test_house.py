"""The house rules: who may import whom, what contract modules are, what must not appear (design.md, R6, R7, R14, R22...)."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from graph.contract import TraceEventType
from nodes.prompts import COMPONENTS, LANGUAGES, prompt
from service.registry import BUILDERS, Site, build_tools
from service.settings import Settings
from tests.data import ROOT
from tools.canonical.store import CanonicalStore
from tools.catalog import load_catalog
from tools.contract import InformationGain, PreviousObservation

PACKAGES = ("graph", "nodes", "release", "service", "tools")
MAX_LINES = 460
SECTIONS = ("budget", "context", "contract", "ledger", "state", "tracker")
"""Modules of `graph` that nodes may read: values and contracts, never the wiring (channels, routes, diagnosis)."""

MAY_IMPORT = {
    "service": r"(graph|nodes|release|tools)(\..+)?",
    "graph": r"nodes\..+|release\.contract|tools\.(contract|catalog)",
    "nodes": rf"graph\.({'|'.join(SECTIONS)})|release\..+"
    r"|tools\.(canonical\.store|catalog|contract|envelope_protocol|evidence_tool)",
    "release": r"graph\.contract|tools\.(contract|evidence_tool|masking|placeholders)",
    "tools": r"graph\.contract",
}
"""Package → modules of the other packages that it may import."""

FRAMEWORKS = {
    "langgraph",
    "langchain",
    "langchain_core",
    "langchain_openai",
    "fastapi",
    "starlette",
    "uvicorn",
    "typer",
}
RUN_TABLES = {"sqlmodel"}


def sources(*packages: str) -> Iterator[Path]:
    for package in packages:
        yield from sorted((ROOT / package).rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imports(path: Path) -> set[str]:
    """Absolute names of imported modules; `from a import b` counts as `a.b` where that is a module."""
    names: set[str] = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name}: relative import"
            module = node.module or ""
            for alias in node.names:
                below = ROOT / module.replace(".", "/") / f"{alias.name}.py"
                names.add(f"{module}.{alias.name}" if below.is_file() else module)
    return names


def ours(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def tracked() -> tuple[Path, ...]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False).stdout.decode()
    if not listed:
        pytest.skip("not a git checkout: nothing says which files belong to it")
    return tuple(ROOT / name for name in listed.split("\0") if name and (ROOT / name).is_file())


def texts() -> Iterator[tuple[str, str]]:
    for path in tracked():
        data = path.read_bytes()
        if b"\0" not in data[:4096]:
            yield ours(path), data.decode("utf-8", "replace")


@pytest.mark.parametrize("package", PACKAGES)
def test_who_may_import_whom(package: str) -> None:
    allowed = re.compile(MAY_IMPORT[package])
    seen = 0
    for path in sources(package):
        for name in imports(path):
            if name.split(".")[0] in PACKAGES and name.split(".")[0] != package:
                assert allowed.fullmatch(name), f"{ours(path)} may not import {name}"
                seen += 1
    assert seen


def test_the_import_rule_refuses_what_it_must() -> None:
    assert not re.fullmatch(MAY_IMPORT["tools"], "nodes.ports")
    assert not re.fullmatch(MAY_IMPORT["nodes"], "graph.diagnosis")
    assert not re.fullmatch(MAY_IMPORT["nodes"], "graph.routes")
    assert all(not re.fullmatch(rule, "service.app") for package, rule in MAY_IMPORT.items() if package != "service")


@pytest.mark.parametrize("package", ["tools", "release"])
def test_tools_and_release_know_no_framework_and_no_run_tables(package: str) -> None:
    for path in sources(package):
        used = {name.split(".")[0] for name in imports(path)}
        assert not used & (FRAMEWORKS | RUN_TABLES), ours(path)
        assert "diagnosis_run" not in path.read_text("utf-8"), ours(path)


def test_only_release_and_contracts_are_free_of_io() -> None:
    for path in sources("release"):
        used = {name.split(".")[0] for name in imports(path)}
        assert not used & {"asyncio", "httpx", "os", "pathlib", "socket", "sqlalchemy", "sqlite3", "time"}, ours(path)


def contract_files() -> list[Path]:
    return [path for path in sources(*PACKAGES) if path.name == "contract.py"]


def modules(paths: list[Path]) -> list[ModuleType]:
    return [importlib.import_module(ours(path).removesuffix(".py").replace("/", ".")) for path in paths]


def test_r6_every_package_has_a_contract() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in contract_files()} == set(PACKAGES)


def test_r6_contracts_import_the_standard_library_pydantic_and_contracts_alone() -> None:
    for path in contract_files():
        for name in imports(path):
            top = name.split(".")[0]
            pure = top in sys.stdlib_module_names or top == "pydantic"
            assert pure or name.endswith(".contract"), f"{ours(path)} imports {name}"


def test_r6_contract_records_are_immutable_and_refuse_unknown_keys() -> None:
    records = [
        value
        for module in modules(contract_files())
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, BaseModel) and value is not BaseModel
    ]
    assert len(records) > 40
    for record in records:
        assert record.model_config.get("frozen") is True, record.__name__
        assert record.model_config.get("extra") == "forbid", record.__name__


def test_r7_no_json_schema_engine() -> None:
    engines = {"jsonschema", "jsonschema_rs", "fastjsonschema", "referencing", "openapi_schema_validator"}
    for path in sources(*PACKAGES):
        assert not {name.split(".")[0] for name in imports(path)} & engines, ours(path)


def test_r14_the_canonical_store_lists_nothing() -> None:
    assert {name for name in vars(CanonicalStore) if not name.startswith("_")} == {"begin", "finish", "reject", "get"}
    for name, method in inspect.getmembers(CanonicalStore, inspect.isfunction):
        if name in {"begin", "finish", "reject"}:
            assert list(inspect.signature(method).parameters) == ["self", "record"]
    listing = re.compile(r"(list|scan|iter|find|all|keys|by_run|for_run|of_run)", re.IGNORECASE)
    for path in sources("tools"):
        if "canonical" not in path.parts:
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
                assert not listing.search(node.name), f"{ours(path)}: {node.name}"
            if isinstance(node, ast.Attribute):
                assert node.attr not in {"scan_iter", "scan"}, ours(path)


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    catalog = load_catalog(ROOT / "examples" / "shop" / "superbiz.toml")
    built = build_tools(Site(catalog, tmp_path_factory.mktemp("index"), {}))
    assert len(built) == len(BUILDERS)
    return dict(built)


def test_r22_envelopes_are_three_concrete_classes(tools: dict[str, Any]) -> None:
    envelopes = [tool.envelope for tool in tools.values()]
    assert [each.__name__ for each in envelopes] == ["RagToolCall", "QueryLogsToolCall", "MysqlToolCall"]
    for envelope in envelopes:
        assert set(envelope.model_fields) == {"previous_observation", "input"}
        request = envelope.model_fields["input"].annotation
        assert inspect.isclass(request)
        assert issubclass(request, BaseModel)
        assert not envelope.__pydantic_generic_metadata__["parameters"]
        assert PreviousObservation in get_args(envelope.model_fields["previous_observation"].annotation)
        properties = request.model_json_schema()["properties"]
        assert properties
        for name, schema in properties.items():
            assert schema.get("type") != "object", f"{request.__name__}.{name} is an open object"


def test_r22_r135_r137_nothing_of_what_was_rejected_exists() -> None:
    absent = re.compile(
        r"\b(JsonNode|ToolCallEnvelope|class \w*Judge|next_action|nextAction|new_count|newCount|recover_budget_exhaustion"
        r"|recoverBudgetExhaustion|model_audit|confidence_score)\b"
    )
    for path in sources(*PACKAGES):
        found = absent.search(path.read_text("utf-8"))
        assert found is None, f"{ours(path)}: {found}"
    # R22 is about envelopes and requests: a generic descriptor elsewhere describes no tool's schema.
    for path in (path for path in sources("tools") if path.name in {"envelope.py", "request.py", "contract.py"}):
        assert "Generic" not in {node.id for node in ast.walk(tree(path)) if isinstance(node, ast.Name)}, ours(path)
    assert [member.value for member in InformationGain] == ["GAINED", "NO_GAIN"]
    assert not any("JUDGE" in event.value for event in TraceEventType)


def property_names(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for value in schema.values():
            yield from property_names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from property_names(value)


def test_r39_no_tool_reports_gain_or_quality() -> None:
    reported = re.compile(r"gain|quality|useful|confidence|novel|new_|worth|verdict", re.IGNORECASE)
    responses = [
        value
        for path in sources("tools")
        for value in vars(modules([path])[0]).values()
        if isinstance(value, type)
        and issubclass(value, BaseModel)
        and re.search(r"Response$|Document$|Event$|Pattern$", value.__name__)
    ]
    assert {"QueryLogsResponse", "LogEvent"} <= {each.__name__ for each in responses}
    for response in responses:
        for name in property_names(response.model_json_schema()):
            assert not reported.search(name), f"{response.__name__}.{name}"


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("component", COMPONENTS)
def test_r102_prompts_name_no_machinery(component: str, language: str, tools: dict[str, Any]) -> None:
    text = prompt(component, language)
    names = {name for tool in tools.values() for name in property_names(tool.envelope.model_json_schema())}
    # What a draft cites is part of the draft's contract; everything else of the schemas stays out.
    names -= {"tool_call_id", "input", "query", "topic", "limit"}
    machinery = {
        "threshold", "counter", "projector", "budget", "next_action", "schema", "token", "saturat", "harness", "tracker",
        "阈值", "计数", "投影", "预算", "饱和", "连续", "下一步动作", "工具名", "跟踪器",
    }  # fmt: skip
    for word in {*names, *tools, *machinery, *BUILDERS}:
        if word in BUILDERS:
            assert not re.search(
                rf"\b{word}\b", text.replace("logs or a database", "").replace("Logs and databases", "")
            )
        else:
            assert word.lower() not in text.lower(), f"{component}.{language}: {word}"
    assert not re.search(r"\b(rag|mysql|sql|loki|elasticsearch)\b", text, re.IGNORECASE)
    assert not re.search(r"\d", re.sub(r"A[1-9]", "", text)), "a number in a prompt is a threshold or a counter"


R101 = {
    "zh": (
        r"不必强行.*根因",
        r"`conclusion` 为 null 是合法",
        r"缺少企业、时间、服务或错误信息[\s\S]*一次都不查[\s\S]*missing_info",
        r"GAINED[::].*新的、可核对的事实.*证实、排除或缩小",
        r"NO_GAIN[::].*正确但无用、泛泛而谈,或重复",
        r"没有明显不同、且可能带来新信息的查询范围时,就结束",
        r"stop_required.*不得再发起任何查询",
    ),
    "en": (
        r"root cause need not be forced",
        r"`conclusion: null` is a legal completion",
        r"company, time, service or error information is missing[\s\S]*without\s+any query[\s\S]*missing_info",
        r"GAINED:.*new, verifiable facts that confirm, exclude or narrow",
        r"NO_GAIN:.*correct but useless, generic, or repeats",
        r"no clearly different scope is left that may bring new information, finish",
        r"stop_required.*make no further query",
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_r101_the_diagnosis_prompt_says_all_of_it(language: str) -> None:
    text = prompt("diagnosis", language)
    for point in R101[language]:
        assert re.search(point, text), point


KEYS = re.compile(
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"
    r"|\b(?:sk|pk|rk)-[A-Za-z0-9_\-]{16,}"
    r"|\b(?:ghp|gho|ghs|github_pat|glpat|xox[abps])[-_][A-Za-z0-9_\-]{16,}"
    r"|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----"
    r"|\beyJ[A-Za-z0-9_\-]{8,}\.[A-Za-z0-9_\-]{8,}"
    r"|\b[a-z][a-z0-9+]{1,20}://[^\s:/@\"'{}<>]{1,64}:[^\s@/\"'{}<>]{4,128}@(?!127\.0\.0\.1|localhost)"
)
STAND_INS = {
    "tests/unit/test_logs_patterns.py": {"eyJ" + "zdWIiOiIxMjM0In0.c2lnbmF0dXJl"},
    "tests/unit/test_masking.py": {"eyJ" + "hbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0", "-----BEGIN RSA " + "PRIVATE KEY-----"},
    "tests/unit/test_model_settings.py": {"sk-" + "very-secret-value"},
}
"""What the tests of masking mask: made up, and the only keys there are."""


def test_r127_no_keys_anywhere() -> None:
    seen = 0
    for name, text in texts():
        for found in KEYS.finditer(text):
            assert found[0] in STAND_INS.get(name, set()) or made_up_url(name, found[0]), f"{name}: {found[0][:12]}..."
            seen += 1
    assert seen >= 3, "the pattern no longer finds even the stand-ins"


def made_up_url(name: str, found: str) -> bool:
    """A credential in a URL: the form that an error message shows, or one of a test that proves it never shows."""
    return "user:password@" in found or "[user]:password@" in found or (name.startswith("tests/") and "://" in found)


def test_no_path_of_a_machine_and_no_registry_in_any_file() -> None:
    machine = re.compile(r"(?<![\w.~})\]/-])/(?:work|root|home|farm|mnt|Users)/\w")
    registry = re.compile(
        r"\b(?:py" r"pi\.org|python" r"hosted\.org|artifactory|nexus|--index-url|extra-index|find-links)\b"
    )
    for name, text in texts():
        if name == ours(Path(__file__).resolve()):
            continue
        for pattern in (machine, registry):
            found = pattern.search(text)
            assert found is None, f"{name}: {found}"


def test_files_stay_small() -> None:
    for path in sources(*PACKAGES, "tests"):
        if path.name.endswith("_texts.py"):
            continue  # lists of texts, no code
        lines = path.read_text("utf-8").count("\n")
        assert lines <= MAX_LINES, f"{ours(path)} has {lines} lines"


def test_constraints_pin_versions_and_hold_no_address() -> None:
    lines = [line for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines() if not line.startswith("#")]
    assert len(lines) > 50
    for line in lines:
        assert re.fullmatch(r"[A-Za-z0-9_.\-]+==[A-Za-z0-9_.+!]+", line), line


def test_r67_defaults_are_in_order() -> None:
    settings = Settings()
    assert settings.budget_wall_seconds < settings.run_timeout_seconds < settings.canonical_ttl_seconds
