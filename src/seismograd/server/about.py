"""`/api`: what answers here."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

import seismograd
from seismograd.server import models
from seismograd.server.answers import Answer
from seismograd.server.files import plotly_address
from seismograd.server.problems import among
from seismograd.server.runs import Stored

router = APIRouter(tags=["about"])


@router.get("/api", response_model=models.Api, responses=among(), summary="What answers here")
def about(request: Request, shelf: Stored) -> Response:
    """The version of the API and of Seismograd, the store, and where plotly.js is."""
    return Answer(
        {
            "api": 1,
            "version": seismograd.__version__,
            "store": shelf.shown,
            "read_only": request.app.state.read_only,
            "plotly": plotly_address(),
        }
    )
