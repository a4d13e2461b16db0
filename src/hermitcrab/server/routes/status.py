"""GET /health, /ready and /v1/status: answered from a snapshot, never behind the engine thread."""

import dataclasses
from typing import Any

from fastapi import APIRouter
from starlette.responses import JSONResponse

import hermitcrab
from hermitcrab.core.api import Status
from hermitcrab.server.desk import Desk
from hermitcrab.server.schema import gives, status_reply
from hermitcrab.server.wire.shapes import Health, Readiness

# told by /metrics, in the form that tools add up
_FOR_METRICS = frozenset({"timings"})


def status_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`."""
    router = APIRouter()

    @router.get("/health", responses=gives(Health, busy=Health))
    async def health() -> JSONResponse:
        """200 while the engine thread goes round or has nothing to do; 503 when it is stuck with work."""
        status = desk.lanes.status()
        is_stuck = _is_stuck(desk, status)
        word = "stuck" if is_stuck else "draining" if status.is_draining else "ok"
        body = {
            "status": word,
            "tick_age_s": round(status.tick_age_s, 3),
            "stuck_after_s": desk.options.stuck_s,
            "streams": len(status.streams),
        }
        return JSONResponse(body, 503 if is_stuck else 200)

    @router.get("/ready", responses=gives(Readiness, busy=Readiness))
    async def ready() -> JSONResponse:
        """200 while new requests are taken; 503 while the server ends or its engine is stuck."""
        status = desk.lanes.status()
        word = "stuck" if _is_stuck(desk, status) else "draining" if status.is_draining else "ready"
        return JSONResponse({"status": word}, 200 if word == "ready" else 503)

    @router.get("/v1/status", responses=status_reply())
    async def full_status() -> dict[str, Any]:
        """The whole snapshot; sessions from the smallest to the largest."""
        status = desk.lanes.status()
        sessions = sorted(status.sessions, key=lambda session: (session.capacity_rows, session.slot))
        shown = dataclasses.asdict(dataclasses.replace(status, sessions=tuple(sessions)))
        return {
            "version": hermitcrab.__version__,
            "model": desk.options.model_id,
            "context_tokens": desk.lanes.context_tokens,
            **{name: value for name, value in shown.items() if name not in _FOR_METRICS},
        }

    return router


def _is_stuck(desk: Desk, status: Status) -> bool:
    return bool(status.streams) and status.tick_age_s > desk.options.stuck_s
