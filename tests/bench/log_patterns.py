"""10,000 log messages into patterns beside drain3, and how exactly labelled samples are grouped.

Time is the CPU time of one thread in alternating rounds; all rounds take the same messages, of four formats. drain3 pins old
versions of what it needs, so it runs in an environment of its own: DRAIN3_PYTHON names an interpreter that has it, else one is
made for the moment. It is measured as it comes, and with masks for numbers, addresses and ids as ours names them.

Accuracy is the share of lines whose group is exactly the labelled one. Protocol: the rules of `tools/logs/pattern_merge.py`
were chosen on loghub's samples of Apache, Hadoop, OpenSSH, Zookeeper, BGL and Thunderbird, judged on HDFS, Linux, OpenStack
and Spark, and found wanting on Linux and OpenStack. The errors there were looked at and rules changed, so these two count as
used. Of HDFS and Spark nobody looked at an error: only they are held to the limit, and structured samples
(`*_2k.log_structured.csv`) of other formats in the folder that LABELLED_LOGS names. Labels of samples without a structured
file follow from loghub's templates: a line belongs to the template with the most fixed text that fits it.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path

from tests.data import ROOT
from tools.logs.patterns import PatternGrouper

MESSAGES, MIN_ACCURACY = 10_000, 0.90
PROMISED_RATIO, MAX_RATIO = 0.5, 0.8
"""Of drain3's time: what is aimed at, and what holds on a machine that others use too. Only the latter breaks the benchmark."""
HEADERS = {
    "HDFS": r"\d{6} \d{6} \d+ \w+ \S+: ",
    "Linux": r"\w{3} +\d+ [\d:]{8} \S+ .*?: ",
    "OpenStack": r"\S+ \S+ \S+ \d+ \w+ \S+ \[[^\]]*\] ",
    "Spark": r"\S+ \S+ \w+ \S+: ",
}
"""Samples with templates, by what stands before a line's message."""
USED = ("Linux", "OpenStack")
_THEIRS = """
import json, logging, sys, time
from drain3 import TemplateMiner
from drain3.masking import MaskingInstruction
from drain3.template_miner_config import TemplateMinerConfig
logging.disable(logging.CRITICAL)
messages = json.load(open(sys.argv[1], encoding="utf-8"))
masks = (
    (r"\\b\\d+(?:\\.\\d+){3}\\b", "ip"),
    (r"\\b(?:0x[0-9a-f]+|[0-9a-f]{8,})\\b", "hex"),
    (r"\\b\\d+(?:\\.\\d+)?\\b", "num"),
)
for line in sys.stdin:
    config = TemplateMinerConfig()
    config.masking_instructions = [MaskingInstruction(*mask) for mask in masks] if line.strip() == "masked" else []
    miner = TemplateMiner(config=config)
    start = time.process_time()
    groups = [miner.add_log_message(message)["cluster_id"] for message in messages]
    shown = [(cluster.get_template(), cluster.size) for cluster in miner.drain.clusters]
    print(json.dumps([time.process_time() - start, groups, len(shown)]), flush=True)
"""


def folder() -> Path | None:
    """Return where the samples lie, or None."""
    path = Path(os.environ.get("SUPERBIZ_DATA", ROOT.parent / "shared" / "data")) / "logs"
    return path if path.is_dir() else None


def labelled(logs: Path, name: str) -> list[tuple[str, str]]:
    """Return (message, label) of the lines of a sample that fit a template."""
    header = re.compile(HEADERS[name])
    with (logs / f"{name}_2k.log_templates.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["EventId"], row["EventTemplate"].strip()) for row in csv.DictReader(file)]
    rows.sort(key=lambda row: -len(row[1].replace("<*>", "")))
    templates = [(label, re.compile(r".*?".join(map(re.escape, text.split("<*>"))))) for label, text in rows]
    found = []
    for line in (logs / f"{name}_2k.log").read_text("utf-8").splitlines():
        message = header.sub("", line, count=1).strip()
        label = next((label for label, template in templates if template.fullmatch(message)), None)
        if label is not None:
            found.append((message, label))
    return found


def accuracy(groups: Sequence[Hashable], labels: Sequence[Hashable]) -> float:
    """Return the share of lines whose group is exactly the labelled one."""
    ours, theirs = (defaultdict[Hashable, set[int]](set) for _ in range(2))
    for index, (group, label) in enumerate(zip(groups, labels, strict=True)):
        ours[group].add(index)
        theirs[label].add(index)
    exact = {frozenset(group) for group in theirs.values()}
    return sum(len(group) for group in ours.values() if frozenset(group) in exact) / len(labels)


def ours(messages: Sequence[str]) -> tuple[float, list[int], int]:
    """Return seconds of CPU, the group of each message, and how many patterns are told."""
    start = time.process_time()
    grouper = PatternGrouper()
    shapes = grouper.add(messages)
    places = grouper.grouping.places
    groups = [places[shape] for shape in shapes]
    shown = [(pattern.template, pattern.values, pattern.count) for pattern in grouper.grouping.patterns]
    return time.process_time() - start, groups, len(shown)


class Drain3:
    """drain3 in a process of its own."""

    def __init__(self, python: str, messages: Sequence[str], workplace: Path) -> None:
        path = workplace / "messages.json"
        path.write_text(json.dumps(messages), encoding="utf-8")
        command = [python, "-c", _THEIRS, str(path)]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def round(self, how: str) -> tuple[float, list[int], int]:
        """Return the same as `ours`; `masked`: numbers, addresses and ids are named as in ours, `bare`: they are not."""
        assert self.child.stdin is not None
        assert self.child.stdout is not None
        self.child.stdin.write(how + "\n")
        self.child.stdin.flush()
        seconds, groups, shown = json.loads(self.child.stdout.readline())
        return seconds, groups, shown

    def close(self) -> None:
        """End the child."""
        assert self.child.stdin is not None
        self.child.stdin.close()
        self.child.wait()


def interpreter(workplace: Path) -> str | None:
    """Return an interpreter that has drain3, or None when there is none to be had."""
    python = os.environ.get("DRAIN3_PYTHON")
    if python is None:
        python = str(workplace / "venv" / "bin" / "python")
        for command in (
            [sys.executable, "-m", "venv", str(workplace / "venv")],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "drain3"],
        ):
            if subprocess.run(command, capture_output=True, timeout=180, check=False).returncode:
                return None
    has = subprocess.run([python, "-c", "import drain3"], capture_output=True, check=False).returncode == 0
    return python if has else None


def structured(file: Path) -> list[tuple[str, str]]:
    """Return (message, label) of a sample that has a label on each line."""
    with file.open(encoding="utf-8", newline="") as lines:
        return [(row["Content"], row["EventTemplate"]) for row in csv.DictReader(lines)]


def compare(messages: Sequence[str], rounds: int) -> str | None:
    """Print the times of alternating rounds; return what is broken."""
    ours(messages)
    gc.collect()
    gc.freeze()  # what the bench holds is not for the grouper to walk
    with tempfile.TemporaryDirectory() as name:
        python = interpreter(Path(name))
        if python is None:
            alone = statistics.median(ours(messages)[0] for _ in range(rounds))
            print(f"  ours {alone * 1e3:.0f} ms; not compared: drain3 is not to be had")
            return None
        drain3 = Drain3(python, messages, Path(name))
        drain3.round("masked")
        turns = [(ours(messages)[0], drain3.round("bare")[0], drain3.round("masked")[0]) for _ in range(rounds)]
        drain3.close()
    mine, bare, masked = (statistics.median(column) * 1e3 for column in zip(*turns, strict=True))
    ratio, to_masked = (statistics.median(turn[0] / turn[at] for turn in turns) for at in (1, 2))
    print(f"  ours {mine:.0f} ms; drain3 as it comes {bare:.0f} ms, ratio {ratio:.2f} (at most {MAX_RATIO})")
    best, theirs = (min(column) * 1e3 for column in zip(*[turn[:2] for turn in turns], strict=True))
    print(
        f"  best rounds: ours {best:.0f} ms, drain3 {theirs:.0f} ms, ratio {best / theirs:.2f} (aim {PROMISED_RATIO})"
    )
    print(f"  drain3 that masks as much {masked:.0f} ms, ratio {to_masked:.2f}")
    return f"{ratio:.2f} times drain3" if ratio > MAX_RATIO else None


def judge(samples: Mapping[str, Sequence[tuple[str, str]]], kind: str) -> float:
    """Print the accuracy on each sample; return their mean."""
    shares = {
        name: accuracy(ours([message for message, _ in sample])[1], [label for _, label in sample])
        for name, sample in samples.items()
    }
    mean = statistics.mean(shares.values())
    told = ", ".join(f"{name} {share:.3f} of {len(samples[name])}" for name, share in shares.items())
    print(f"  grouping accuracy on formats {kind}: mean {mean:.3f}: {told}")
    return mean


def main() -> None:
    """Print times and accuracies; exit 1 when a limit is broken."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    logs = folder()
    if logs is None:
        print("log patterns: not measured, SUPERBIZ_DATA has no logs")
        return
    samples = {name: labelled(logs, name) for name in HEADERS}
    lines = [message for sample in samples.values() for message, _ in sample]
    messages = (lines * (MESSAGES // len(lines) + 1))[:MESSAGES]
    print(f"{MESSAGES} messages into patterns, median of {options.rounds} alternating rounds:")
    broken = [compare(messages, options.rounds)]
    used = {file.name.split("_")[0]: structured(file) for file in sorted(logs.glob("*_structured.csv"))}
    judge(used | {name: samples[name] for name in USED}, "that served to choose the rules")
    unused = {name: sample for name, sample in samples.items() if name not in USED}
    if others := os.environ.get("LABELLED_LOGS"):
        unused |= {file.name.split("_")[0]: structured(file) for file in sorted(Path(others).glob("*_structured.csv"))}
    mean = judge(unused, f"that did not (at least {MIN_ACCURACY})")
    broken.append(f"accuracy {mean:.3f}" if mean < MIN_ACCURACY else None)
    if any(broken):
        raise SystemExit("log patterns break their limits: " + ", ".join(filter(None, broken)))


if __name__ == "__main__":
    main()
