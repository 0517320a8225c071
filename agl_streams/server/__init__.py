"""The HTTP server: Agent-lightning v0.3's store over REST and OTLP, and what we add to it.

Read in this order: ``table`` (which route a request is), ``call`` and ``validation`` (what it says), ``routes_*``
(what is done), ``answers`` and ``faults`` (what is answered), ``app`` (all of it together), ``serve`` (as processes).

Routing and validation are our own: a request through FastAPI costs 200 µs of this process, through Starlette's router
50 µs, through this one 2 µs, and the store's part is about 100 µs. FastAPI writes the OpenAPI document, from the same
table of routes and the same pydantic models.
"""
