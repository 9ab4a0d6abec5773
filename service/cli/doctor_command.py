"""`superbiz doctor`: what is configured, what answers, what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.cli.console import ExitCode, print_json, run_async, say
from service.cli.options import CatalogOption, JsonOption, settings_from

if TYPE_CHECKING:
    from service.settings import Settings


def doctor(json: JsonOption = False, catalog: CatalogOption = None) -> int:
    """Check the configuration; exit status 2 when something that is needed is broken."""
    settings = settings_from(catalog=catalog)
    return run_async(lambda: _doctor(settings, as_json=json))


async def _doctor(settings: Settings, *, as_json: bool) -> int:
    from service.doctor import examine

    findings = await examine(settings)
    healthy = not any(finding.broken for finding in findings)
    if as_json:
        print_json({"healthy": healthy, "checks": [finding.as_json() for finding in findings]})
    else:
        for finding in findings:
            mark, style = ("ok", "green") if finding.ok else ("BROKEN", "red") if finding.needed else ("note", "yellow")
            say(f"{mark:<7}{finding.subject}: {finding.text}", style=style)
    return ExitCode.OK if healthy else ExitCode.USAGE
