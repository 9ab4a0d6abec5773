"""Keeps the indexes of a catalogue fresh in the background, whatever thread or event loop asks."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from tools.catalog import Catalog
from tools.rag.index import IndexReport, index_catalog

REFRESH_SECONDS = 60.0
_log = logging.getLogger(__name__)


class IndexKeeper:
    """Runs at most one indexing at a time, in a daemon thread: a caller may stop waiting, the work goes on."""

    def __init__(self, catalog: Catalog, index_dir: Path, clock: Callable[[], float] = time.monotonic) -> None:
        self._catalog = catalog
        self._index_dir = index_dir
        self._clock = clock
        self._lock = threading.Lock()
        self._running: Future[IndexReport] | None = None
        self._finished_at: float | None = None

    def refresh(self) -> Future[IndexReport] | None:
        """Start indexing if the last one is older than `REFRESH_SECONDS`.

        Returns the run to wait for, the one in progress included; None when the indexes are fresh.
        """
        with self._lock:
            if self._running is not None:
                return self._running
            if self._finished_at is not None and self._clock() - self._finished_at < REFRESH_SECONDS:
                return None
            run: Future[IndexReport] = Future()
            run.set_running_or_notify_cancel()  # from here on a waiter's cancel does not reach the work
            self._running = run
        threading.Thread(target=self._index, args=(run,), name="knowledge-index", daemon=True).start()
        return run

    @property
    def ever_finished(self) -> bool:
        """True once an indexing of this process has ended; from then on a search need not wait for the next."""
        return self._finished_at is not None

    def _index(self, run: Future[IndexReport]) -> None:
        report = IndexReport()
        try:
            report = index_catalog(self._catalog, self._index_dir)
            for problem in report.problems:
                _log.warning("%s", problem)
        except Exception as error:
            _log.error("knowledge could not be indexed: %s", type(error).__name__)
        finally:
            with self._lock:
                self._finished_at = self._clock()
                self._running = None
            run.set_result(report)
