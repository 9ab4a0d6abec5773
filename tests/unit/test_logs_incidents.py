"""The ten real incidents: a sensible query brings the key fact into the observation, also out of 10,000 lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.data import data_dir
from tools.catalog import TopicEntry, load_catalog
from tools.evidence_tool import CallContext
from tools.logs.request import QueryLogsRequest
from tools.logs.tool import build_logs_tool

CASES = [
    ("07_high_latency", "customer-orders-logs", "database"),
    ("07_high_latency", "customer-orders-logs", ""),
    ("09_crashpod", "payment-processing-worker-logs", ""),
    ("09_crashpod", "kubernetes-state", "DEPLOY_ENV"),
    ("12_job_crashing", "java-api-checker-logs", "failed"),
    ("12_job_crashing", "java-api-checker-logs", "exception OR failed"),
    ("23_app_error_in_current_logs", "meme-deployment-logs", "error"),
    ("23_app_error_in_current_logs", "meme-deployment-logs", "level:error"),
    ("23_app_error_in_current_logs", "meme-deployment-logs", ""),
    ("51_logs_summarize_errors", "my-app-logs", "error"),
    ("51_logs_summarize_errors", "my-app-logs", ""),
    ("55_kafka_runbook", "invoices-app-logs", "finance"),
    ("55_kafka_runbook", "invoices-app-logs", ""),
    ("66_http_error_needle", "web-server-logs", "error"),
    ("66_http_error_needle", "web-server-logs", "status:5*"),
    ("66_http_error_needle", "web-server-logs", ""),
    ("67_performance_degradation", "api-gateway-logs", "error OR timeout"),
    ("67_performance_degradation", "api-gateway-logs", ""),
    ("69_rate_limit_exhaustion", "api-limiter-logs", "error"),
    ("69_rate_limit_exhaustion", "api-limiter-logs", ""),
    ("70_memory_leak_detection", "data-processor-logs", "memory OR error"),
    ("70_memory_leak_detection", "data-processor-logs", ""),
]


async def observe(folder: Path, topic: str, query: str) -> dict[str, Any]:
    tool = build_logs_tool(load_catalog(folder / "superbiz.toml"))
    assert tool is not None
    request = QueryLogsRequest(topic=topic, query=query, lookback_minutes=1440)
    outcome = await tool.run(request, CallContext(now=1_800_000_000.0, at_given=False, deadline_seconds=14.0))
    observation = tool.observe("call-1", tool.scope(request), outcome.agent_result)
    assert len(json.dumps(observation, ensure_ascii=False).encode()) <= 8192
    return observation


def key_fact(incident: str) -> re.Pattern[str]:
    return re.compile(json.loads((data_dir() / "incidents" / "expected.json").read_text())[incident]["key_fact"])


def told(observation: dict[str, Any]) -> str:
    """Return the text of events only: patterns may not be quoted as log lines."""
    return "\n".join(json.dumps(event, ensure_ascii=False) for event in observation["events"])


@pytest.mark.parametrize(("incident", "topic", "query"), CASES)
async def test_key_fact_is_observed(incident: str, topic: str, query: str) -> None:
    observation = await observe(data_dir() / "incidents" / incident, topic, query)
    assert key_fact(incident).search(told(observation))


FLOODED = sorted({(incident, topic) for incident, topic, _ in CASES if topic != "kubernetes-state"})


@pytest.mark.parametrize(("incident", "topic"), FLOODED)
async def test_r55_key_fact_survives_projection_of_ten_thousand_lines(
    tmp_path: Path, incident: str, topic: str
) -> None:
    source = load_catalog(data_dir() / "incidents" / incident / "superbiz.toml")
    entry = next(item for item in source.topics if item.name == topic)
    (tmp_path / "logs").mkdir()
    total = copy_repeated(source.base, entry, tmp_path / "logs")
    (tmp_path / "superbiz.toml").write_text(f'now = "latest"\n[[topic]]\nname = "{topic}"\npath = "logs"\n')
    observation = await observe(tmp_path, topic, "")
    assert observation["total"] >= total
    assert observation["truncated"]
    assert key_fact(incident).search(told(observation))


def test_every_incident_is_flooded() -> None:
    expected = json.loads((data_dir() / "incidents" / "expected.json").read_text())
    assert {incident for incident, _ in FLOODED} == set(expected)


def copy_repeated(base: Path, entry: TopicEntry, target: Path) -> int:
    """Copy the topic's files and append an ordinary line 10,000 times to the largest."""
    files = sorted(base.glob(entry.path or ""))
    for file in files:
        (target / file.name).write_bytes(file.read_bytes())
    largest = max(files, key=lambda file: file.stat().st_size)
    lines = largest.read_text().splitlines()
    common = next((line for line in lines if "INFO" in line), [line for line in lines if line.strip()][-1])
    with (target / largest.name).open("a") as out:
        out.write("\n" + (common + "\n") * 10_000)
    return 10_000


async def test_metadata_without_values_is_no_error() -> None:
    observation = await observe(data_dir() / "incidents" / "09_crashpod", "payment-processing-worker-logs", "error")
    assert observation["evidence_status"] == "NO_EVIDENCE"


async def test_absent_text_is_no_evidence_in_every_topic() -> None:
    for folder in sorted((data_dir() / "incidents").glob("*/")):
        for topic in load_catalog(folder / "superbiz.toml").topics:
            observation = await observe(folder, topic.name, "zebra-unicorn-4711")
            assert (observation["total"], observation["evidence_status"]) == (0, "NO_EVIDENCE")


async def test_real_logs_answer_their_own_questions(tmp_path: Path) -> None:
    logs = data_dir() / "logs"
    topics = "".join(
        f'[[topic]]\nname = "{file.stem.lower()}"\npath = "{file}"\n' for file in sorted(logs.glob("*_2k.log"))
    )
    (tmp_path / "superbiz.toml").write_text('now = "latest"\n' + topics)
    questions = {
        "apache_2k": ("level:error", "mod_jk"),
        "hadoop_2k": ("level:error", "RECEIVED SIGNAL|Error|ERROR"),
        "openssh_2k": ('"Failed password" root', "Failed password"),
        "zookeeper_2k": ("level:warn", "WARN"),
        "openstack_2k": ("status: 200", "status"),
        "bgl_2k": ("level:info", "INFO"),
        "linux_2k": ('"authentication failure"', "authentication failure"),
    }
    for topic, (query, expected) in questions.items():
        tool = build_logs_tool(load_catalog(tmp_path / "superbiz.toml"))
        assert tool is not None
        request = QueryLogsRequest(topic=topic, query=query, lookback_minutes=10_080)
        outcome = await tool.run(request, CallContext(now=1_800_000_000.0, at_given=False, deadline_seconds=14.0))
        events = outcome.agent_result["events"]
        assert events, topic
        assert re.search(expected, events[0]["message"]), (topic, events[0]["message"])
