"""GET /metrics: for Prometheus and what reads its format."""

from fastapi import APIRouter, Request
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from starlette.responses import PlainTextResponse, Response

from hermitcrab.server.schema import gives


def metric_routes(registry: CollectorRegistry) -> APIRouter:
    """The route, telling what `registry` collects."""
    router = APIRouter()

    @router.get("/metrics", response_class=PlainTextResponse, responses=gives(media_type="text/plain"))
    async def metrics(request: Request) -> Response:
        """The metrics as text, or as OpenMetrics where that is asked for."""
        encode, media_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(registry), headers={"Content-Type": media_type})

    return router
