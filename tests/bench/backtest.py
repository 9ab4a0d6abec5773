"""A back-test over many bundles: six thresholds beside one, in alternating rounds; each bundle is read once either way.

Fails where a bundle is read again.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

from service.backtest import bundles
from service.backtest.bundles import backtest_bundles, read_histories
from service.replay.text import write_bundle
from tests.fakes import SUPPORTED, call, draft
from tests.loop import make_loop
from tests.replays import bundles_of

CALLS = 8


async def recorded() -> str:
    loop = make_loop(
        [
            *(
                call(f"c{each}", f"{'none' if each % 2 else 'found'} {each}", _before(each))
                for each in range(1, CALLS + 1)
            ),
            draft("cause of it", [("A1", "OBSERVATION", "line about found 2", ["c2"])]),
            SUPPORTED,
        ]
    )
    await loop.run(no_gain_threshold=50)
    (bundle,) = await bundles_of(loop)
    return write_bundle(bundle)


def _before(number: int) -> tuple[str, str] | None:
    return (f"c{number - 1}", "GAINED") if number % 2 and number > 1 else None


def seconds(files: list[Path], thresholds: range) -> float:
    begun = time.process_time()
    left_out = list[str]()
    result = backtest_bundles(read_histories(files, left_out), thresholds, range(2, 3))
    spent = time.process_time() - begun
    assert len(result.histories) == len(files)
    assert not left_out
    return spent


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bundles", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    text, read = asyncio.run(recorded()), 0
    real = bundles.read_bundle

    def counted(raw: bytes) -> object:
        nonlocal read
        read += 1
        return real(raw)

    bundles.read_bundle = counted  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{number:05d}.json") for number in range(options.bundles)]
        for file in files:
            file.write_text(text)
        pairs = [(seconds(files, range(1, 7)), seconds(files, range(3, 4))) for _ in range(options.rounds)]
    six, one = (statistics.median(each) for each in zip(*pairs, strict=True))
    ratio = statistics.median(first / second for first, second in pairs)
    print(f"{options.bundles} bundles of {len(text) // 1024} KiB, {read // (2 * options.rounds)} reads a back-test")
    if read != 2 * options.rounds * options.bundles:
        raise SystemExit("a bundle was not read exactly once a back-test")
    print(f"six thresholds {six:.2f} s of CPU, one threshold {one:.2f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    main()
