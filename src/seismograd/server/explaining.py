"""`/api/explain`: what a finding means, why it matters, what to try."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

from fastapi import APIRouter, Path
from starlette.responses import Response

from seismograd.reports.pages import Page
from seismograd.server import models
from seismograd.server.answers import Answer
from seismograd.server.problems import RefusedError, among
from seismograd.server.telling import known_pages

router = APIRouter(tags=["explain"])


@router.get("/api/explain", response_model=models.Catalogue, responses=among(), summary="All findings there can be")
def catalogue() -> Response:
    """By id."""
    return Answer({"findings": [_told(page) for page in known_pages().values()]})


@router.get(
    "/api/explain/{finding}",
    response_model=models.Explained,
    responses=among(404),
    summary="What a finding means",
)
def explained(finding: Annotated[str, Path(max_length=100)]) -> Response:
    """Why it matters, how it is judged, what to try, its limits; as markdown."""
    page = known_pages().get(finding)
    if page is None:
        near = get_close_matches(finding, known_pages(), n=1)
        hint = f"did you mean {near[0]}?" if near else "GET /api/explain lists all of them"
        raise RefusedError(404, "no-such-finding", f"there is no finding {finding!r}", hint)
    return Answer(_told(page))


def _told(page: Page) -> dict[str, Any]:
    return {"id": page.id, "title": page.title, "group": page.group, "markdown": page.markdown()}
