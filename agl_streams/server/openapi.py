"""The OpenAPI document and its pages. FastAPI writes them, from our table of routes and the models that validate."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final

from fastapi import Body, FastAPI, Query, Response
from fastapi.openapi.docs import get_redoc_html, get_swagger_ui_html
from fastapi.responses import JSONResponse

from agl_streams.server.answers import plain
from agl_streams.server.asgi import Answer
from agl_streams.server.call import Call
from agl_streams.server.table import Route

TITLE: Final = "agl-streams"
HTML: Final = b"text/html; charset=utf-8"
_TYPES: Final[dict[str, Any]] = {
    "/v1/traces": {
        "requestBody": {
            "required": True,
            "content": {
                "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                "application/json": {"schema": {"type": "object"}},
            },
        },
        "responses": {
            "200": {
                "description": "What was rejected, if anything, in the type of the request",
                "content": {
                    "application/x-protobuf": {"schema": {"type": "string", "format": "binary"}},
                    "application/json": {"schema": {"type": "object"}},
                },
            }
        },
    },
    "/v1/agl/events": {
        "responses": {
            "200": {"description": "Events", "content": {"text/event-stream": {"schema": {"type": "string"}}}}
        }
    },
}
"""What cannot be said by a model."""


def document(routes: Sequence[Route], version: str) -> bytes:
    """The OpenAPI document of these routes, as JSON."""
    described = FastAPI(
        title=TITLE,
        version=version,
        description="Rollouts, attempts and spans for training agents. Routes and fields marked as extensions are not "
        "part of Agent-lightning's contract.",
    )
    for route in routes:
        described.add_api_route(
            route.path,
            _endpoint(route),
            methods=[route.method],
            status_code=route.status,
            response_model=route.answer,
            response_class=JSONResponse if route.answer is not None else Response,
            summary=f"{route.summary} (extension)" if route.ours else route.summary,
            operation_id=f"{route.handler.__name__}_{route.path.strip('/')}".replace("/", "_").translate(_BRACES),
            tags=[route.tag],
            openapi_extra=_TYPES.get(route.path),
        )
    return plain(described.openapi())


def pages(routes: Sequence[Route], version: str) -> tuple[Route, ...]:
    """The routes that show the document."""

    @cache
    def text() -> bytes:
        return document(routes, version)

    async def openapi(call: Call) -> bytes:
        return text()

    async def docs(call: Call) -> Answer:
        return _page(get_swagger_ui_html(openapi_url="/openapi.json", title=TITLE).body)

    async def redoc(call: Call) -> Answer:
        return _page(get_redoc_html(openapi_url="/openapi.json", title=TITLE).body)

    handlers = {"/openapi.json": openapi, "/v1/agl/openapi.json": openapi, "/docs": docs, "/redoc": redoc}
    return tuple(
        Route(method="GET", path=path, handler=handler, tag="service", summary="This document")
        for path, handler in handlers.items()
    )


_BRACES: Final = str.maketrans("", "", "{}")


def _page(body: bytes | memoryview) -> Answer:
    return Answer(bytes(body), media_type=HTML)


def _endpoint(route: Route) -> Any:
    """A function whose signature says what the route takes; it is described, never called."""

    async def endpoint() -> None: ...

    kinds = inspect.Parameter
    parameters = [
        kinds(segment.strip("{}"), kinds.KEYWORD_ONLY, annotation=str)
        for segment in route.path.split("/")
        if segment.startswith("{")
    ]
    if route.query is not None:
        parameters.append(kinds("query", kinds.KEYWORD_ONLY, annotation=Annotated[route.query, Query()]))
    if route.body is not None:
        annotation = route.body if route.body_required else route.body | None
        default = kinds.empty if route.body_required else None
        parameters.append(kinds("body", kinds.KEYWORD_ONLY, annotation=Annotated[annotation, Body()], default=default))
    vars(endpoint)["__signature__"] = inspect.Signature(parameters)
    return endpoint
