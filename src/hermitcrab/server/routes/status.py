"""GET /health and /v1/status: answered from a snapshot, never behind the engine thread."""

import dataclasses
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

import hermitcrab
from hermitcrab.server.desk import Desk


def status_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`."""
    router = APIRouter()

    @router.get("/health")
    async def health() -> JSONResponse:
        """200 while the engine thread goes round or has nothing to do; 503 when it is stuck with work."""
        status = desk.lanes.status()
        is_stuck = bool(status.streams) and status.tick_age_s > desk.options.stuck_s
        word = "stuck" if is_stuck else "draining" if status.is_draining else "ok"
        body = {
            "status": word,
            "tick_age_s": round(status.tick_age_s, 3),
            "stuck_after_s": desk.options.stuck_s,
            "streams": len(status.streams),
        }
        return JSONResponse(body, 503 if is_stuck else 200)

    @router.get("/v1/status")
    async def full_status() -> dict[str, Any]:
        """The whole snapshot; sessions from the smallest to the largest."""
        status = desk.lanes.status()
        sessions = sorted(status.sessions, key=lambda session: (session.capacity_rows, session.slot))
        return {
            "version": hermitcrab.__version__,
            "model": desk.options.model_id,
            "context_tokens": desk.lanes.context_tokens,
            **dataclasses.asdict(dataclasses.replace(status, sessions=tuple(sessions))),
        }

    return router
