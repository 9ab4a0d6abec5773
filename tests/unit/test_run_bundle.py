"""The bundle's text: what is changed, hostile or foreign is refused by name and within bounds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from service.replay.bundle import Bundle, Entry
from service.replay.text import MAX_BUNDLE_BYTES, MAX_DEPTH, BundleError, read_bundle, write_bundle
from tests.data import ROOT
from tests.documents import SCHEMA, bundle_schema_text

RECORDINGS = Path(__file__).parent.parent / "recordings"
RAW = (RECORDINGS / "probe-stop.json").read_bytes()
LINES = RAW.decode().split("\n")


def refused(raw: bytes) -> str:
    with pytest.raises(BundleError) as error:
        read_bundle(raw)
    message = str(error.value)
    assert len(message) < 500
    assert "\n" not in message
    return message


def with_line(number: int, line: str) -> bytes:
    return "\n".join([*LINES[:number], line, *LINES[number + 1 :]]).encode()


def forged(kind: str, key: str, payload: object) -> bytes:
    """A bundle whose digests are right, so that only the payload's own rules can refuse it."""
    bundle = read_bundle(RAW)
    kept = [entry for entry in bundle.entries if (entry.kind, entry.key) != (kind, key)]
    made = Bundle.of(bundle.run_id, [*kept, Entry(kind, key, payload)])  # type: ignore[arg-type]
    lines = [
        f'{{"kind":{json.dumps(e.kind)},"key":{json.dumps(e.key)},"digest":"{e.digest}","payload":{e.text}}}'
        for e in made.entries
    ]
    text = LINES[0] + "\n" + ",\n".join(lines) + f'\n],"digest":"{made.digest}"}}\n'
    return text.encode("utf-8", "surrogatepass")


def test_r67_a_bundle_is_read_back_as_it_was_written() -> None:
    bundle = read_bundle(RAW)
    assert write_bundle(bundle).encode() == RAW


def test_r67_every_bit_of_a_line_of_each_kind_counts_and_its_entry_is_named() -> None:
    """One bit of each of the first hundred bytes: of the first and last line, and of one entry of each kind."""
    seen: set[str] = set()
    start = 0
    for number, line in enumerate(LINES[:-1]):
        kind = line.split('"')[3] if number else "first"
        raw = line.encode()
        if kind not in seen or number == len(LINES) - 2:
            seen.add(kind)
            for offset in range(min(len(raw), 100)):
                changed = bytearray(RAW)
                changed[start + offset] ^= 1 << (offset % 8)
                message = refused(bytes(changed))
                if 0 < number < len(LINES) - 2:
                    assert message.startswith(f"entry {number}"), message
        start += len(raw) + 1
    assert len(seen) > 8


@given(st.integers(0, len(RAW) - 1), st.integers(1, 255))
def test_r67_any_changed_byte_is_refused(place: int, change: int) -> None:
    refused(RAW[:place] + bytes([RAW[place] ^ change]) + RAW[place + 1 :])


@given(st.integers(0, len(RAW) - 1), st.integers(1, 300))
def test_r67_a_bundle_that_lost_or_gained_bytes_is_refused(place: int, count: int) -> None:
    refused(RAW[:place] + RAW[place + count :])
    refused(RAW[:place] + b" " * count + RAW[place:])


def test_r67_a_missing_or_doubled_entry_is_refused() -> None:
    for number in (2, len(LINES) // 2, len(LINES) - 4):
        refused("\n".join([*LINES[:number], *LINES[number + 1 :]]).encode())
        refused("\n".join([*LINES[:number], LINES[number], *LINES[number:]]).encode())


@given(st.binary(max_size=200))
def test_hostile_bytes_are_a_bounded_error(raw: bytes) -> None:
    refused(raw)
    refused(with_line(3, "").replace(LINES[4].encode(), raw))


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ("[" * 200_000, "nested deeper"),
        ('{"a":' * 200_000, "nested deeper"),
        ('{"step":NaN}', "NaN"),
        ('{"step":-Infinity}', "NaN"),
        ('{"step":1e999}', "number"),
        ('{"step":' + "9" * 100_000 + "}", "not valid JSON"),
        ('{"step":"a","step":"b"}', "stands twice"),
        ("[]", "payload an object"),
        ("null", "payload an object"),
        ('{"step":"\\ud800"}', "Unicode"),
        ('{"step":"' + "\x01" + '"}', "not valid JSON"),
    ],
)
def test_hostile_json_is_a_bounded_error_that_names_the_entry(payload: str, says: str) -> None:
    line = next(number for number, line in enumerate(LINES) if line.startswith('{"kind":"step"'))
    head = LINES[line].split(',"payload":')[0]
    message = refused(with_line(line, f'{head},"payload":{payload}}},'))
    assert message.startswith(f"entry {line} (step 0001:start_run): ")
    assert says in message


def test_too_deep_and_too_large_data_is_refused_before_it_is_used() -> None:
    deep: object = "bottom"
    for _ in range(MAX_DEPTH):
        deep = {"a": deep}
    assert "nested deeper" in refused(forged("result", "result", deep))
    assert "larger than" in refused(b" " * (MAX_BUNDLE_BYTES + 1))
    assert "entries" in refused(RAW[:200].split(b"\n")[0] + b"\n," * 200_000 + b"\n")


@pytest.mark.parametrize(
    ("kind", "key", "payload", "says"),
    [
        ("clock", "0001:start_run", {"readings": ["1"]}, "readings.0"),
        ("clock", "0001:start_run", {"readings": [True]}, "readings.0"),
        ("clock", "0001:start_run", {"readings": [1.0], "more": 1}, "more"),
        ("clock", "0001:start_run", {}, "readings"),
        ("agent_result", "c1", {"run_id": 1}, "payload"),
        ("model_answer", "DIAGNOSIS_AGENT/1", {"failure": "NONSENSE"}, "failure"),
        ("trace", "000001", {"seq": 0}, "payload"),
        ("payloads", "x", {}, "knows no such entry"),
        ("step", "0001:start run", {"step": "", "events": 0, "agent_steps": 0}, "knows no such entry"),
        ("result", "result", {"text": "\ud800"}, "Unicode"),
    ],
)
def test_a_payload_of_the_wrong_form_is_refused_by_field(kind: str, key: str, payload: object, says: str) -> None:
    try:
        raw = forged(kind, key, payload)
    except (UnicodeEncodeError, KeyError):
        with pytest.raises(BundleError, match=says):
            write_bundle(Bundle("r", (Entry(kind, key, payload),)))  # type: ignore[arg-type]
        return
    assert says in refused(raw)


def test_a_bundle_of_another_format_is_refused() -> None:
    assert "superbiz.run/1" in refused(RAW.replace(b"superbiz.run/1", b"superbiz.run/9"))


def test_the_schema_in_the_docs_is_the_format_s_and_every_recording_fits_it() -> None:
    assert (ROOT / SCHEMA).read_text("utf-8") == bundle_schema_text()
    validator = Draft202012Validator(json.loads(bundle_schema_text()))
    for path in sorted(RECORDINGS.glob("*.json")):
        assert not list(validator.iter_errors(json.loads(path.read_text("utf-8"))))
    assert list(validator.iter_errors({**json.loads(RAW), "more": 1}))
