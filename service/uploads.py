"""Uploads into the knowledge base: what may come in, and under which name (R134). Checks are pure."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tools.catalog import Catalog, KnowledgeEntry
from tools.rag.folder import TEXT_SUFFIXES, knowledge_folder
from tools.rag.replace import replace_document
from tools.rag.schema import index_file
from tools.rag.search import document_id

MAX_NAME_BYTES = 180
"""UTF-8 bytes of a file name; file systems end at 255, and a name grows while it is written."""
ALLOWED_TYPES = ", ".join(sorted(TEXT_SUFFIXES))
UPLOAD_THREADS = 2
"""An upload may wait for an index; tools and stores have other threads."""
MAX_UPLOADS = 8
"""Uploads at once, at work or waiting, each with its content in memory."""
_REPLACED = frozenset('<>:"|?*\\/#')
_RESERVED = frozenset({"CON", "PRN", "AUX", "NUL"} | {f"{port}{n}" for port in ("COM", "LPT") for n in range(1, 10)})
"""Names that are devices on Windows, whatever their suffix: a folder of runbooks may be checked out there."""
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0e-\x1f\x7f-\x84\x86-\x9f]")


class UploadRefused(ValueError):
    """What was sent may not be stored; the message names the field and what is allowed."""


class UploadTooLarge(UploadRefused):
    """The file is larger than the configured bound."""


class TooManyUploads(Exception):
    """As many uploads are at work or waiting as may be."""

    def __init__(self) -> None:
        super().__init__(f"at most {MAX_UPLOADS} uploads at once are allowed")


@dataclass(frozen=True, slots=True)
class StoredUpload:
    """An uploaded document that is searchable now (R134)."""

    document_id: str
    chunks: int
    replaced: bool


def safe_name(name: str) -> str:
    """Reduce whatever a client sent to a base name of Markdown or text that stays in its folder.

    Raises UploadRefused when nothing usable is left.
    """
    base = unicodedata.normalize("NFC", name[-1024:].replace("\\", "/").rsplit("/", 1)[-1])
    shown = "".join("_" if each in _REPLACED else each for each in base if each == " " or each.isprintable())
    shown = shown.strip(". ")
    path = PurePosixPath(shown)
    stem, suffix = path.stem.strip(". "), path.suffix.lower()
    if suffix not in TEXT_SUFFIXES:
        raise UploadRefused(f"file: the name must end in one of {ALLOWED_TYPES}")
    if not stem:
        raise UploadRefused("file: the name must have characters before its type")
    if stem.split(".")[0].strip().upper() in _RESERVED:
        stem = f"_{stem}"
    safe = f"{stem}{suffix}"
    if len(safe.encode("utf-8", "surrogatepass")) > MAX_NAME_BYTES:
        raise UploadRefused(f"file: the name may have at most {MAX_NAME_BYTES} bytes in UTF-8")
    return safe


def checked_content(data: bytes, max_bytes: int) -> bytes:
    """Return the content when it is text in UTF-8 within the bound. Raises UploadRefused, UploadTooLarge."""
    if len(data) > max_bytes:
        raise too_large(max_bytes)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UploadRefused("file: must be text in UTF-8") from None
    if _CONTROL.search(text):
        raise UploadRefused("file: must be text without control characters")
    if not text.strip():
        raise UploadRefused("file: must not be empty")
    return data


def too_large(max_bytes: int) -> UploadTooLarge:
    """Return the refusal that says what is allowed."""
    return UploadTooLarge(f"file: at most {max_bytes} bytes are allowed")


def target_of(catalog: Catalog, knowledge: str | None) -> KnowledgeEntry:
    """Return the knowledge folder that takes uploads: the named one, else the catalogue's first.

    Raises UploadRefused for a name that is no folder.
    """
    folders = ", ".join(entry.name for entry in catalog.folders)
    if not catalog.folders:
        raise UploadRefused("knowledge: the catalogue names no folder of documents; uploads need one")
    if not knowledge:
        return catalog.folders[0]
    entry = next((each for each in catalog.knowledge if each.name.lower() == knowledge.lower()), None)
    if entry is None:
        raise UploadRefused(f"knowledge: must be one of {folders}")
    if entry.path is None:
        raise UploadRefused(f"knowledge: {entry.name} is a vector store and takes no uploads; must be one of {folders}")
    return entry


def store_upload(
    catalog: Catalog, index_dir: Path, *, name: str, data: bytes, max_bytes: int, knowledge: str | None = None
) -> StoredUpload:
    """Check a file, put it into a knowledge folder and make it searchable, all or nothing. Blocking.

    Raises UploadRefused, UploadTooLarge; KnowledgeError when folder or index cannot be written: nothing has changed then.
    """
    entry = target_of(catalog, knowledge)
    file_name, content = safe_name(name), checked_content(data, max_bytes)
    folder = knowledge_folder(catalog, entry)
    done = replace_document(entry.name, folder, index_file(index_dir, entry.name, folder), file_name, content)
    return StoredUpload(document_id(entry.name, file_name, "").removesuffix("#"), done.chunks, done.replaced)


class UploadQueue:
    """Lets uploads in while there is room, and stores them in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(UPLOAD_THREADS, thread_name_prefix="upload")
        self._held = 0

    async def run(self, store: Callable[[], StoredUpload]) -> StoredUpload:
        """Return what `store` does. Raises TooManyUploads, and what `store` raises.

        Who leaves meanwhile leaves a whole document behind: a thread is not stopped half-way.
        """
        if self._held >= MAX_UPLOADS:
            raise TooManyUploads
        work = asyncio.get_running_loop().run_in_executor(self._threads, store)
        self._held += 1
        work.add_done_callback(self._ended)
        return await asyncio.shield(work)

    def _ended(self, work: asyncio.Future[StoredUpload]) -> None:
        self._held -= 1
        if not work.cancelled():
            work.exception()  # whoever asked may be gone
