"""GET /v1/models and /v1/models/{id}."""

from typing import Any

from fastapi import APIRouter

from hermitcrab.server.desk import Desk
from hermitcrab.server.schema import gives
from hermitcrab.server.wire.shapes import ModelCard, ModelList


def model_routes(desk: Desk) -> APIRouter:
    """The routes, serving from `desk`."""
    router = APIRouter()
    created_unix_s = desk.clock.unix_s()

    def model() -> dict[str, Any]:
        context_tokens = desk.lanes.context_tokens
        return {
            "id": desk.options.model_id,
            "object": "model",
            "created": created_unix_s,
            "owned_by": "hermitcrab",
            "aliases": list(desk.options.aliases),
            "context_length": context_tokens,
            "max_model_len": context_tokens,
        }

    @router.get("/v1/models", responses=gives(ModelList))
    async def models() -> dict[str, Any]:
        """The one model this server has."""
        return {"object": "list", "data": [model()]}

    @router.get("/v1/models/{name:path}", responses=gives(ModelCard))
    async def named_model(name: str) -> dict[str, Any]:
        """The model under its id or an alias."""
        desk.check_model(name)
        return model()

    return router
