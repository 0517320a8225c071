"""Which calls are taken, refused or changed before anything is sent to the inference server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agl_proxy.attribution import Treatment, attribute, treatment
from agl_proxy.shaping import shape
from agl_streams import errors
from tests.proxy.support import CHAT, REQUEST, STREAM, Proxy, served
from tests.support.engine_standin import EngineStandin

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


def upstream(body: dict[str, Any]) -> dict[str, Any]:
    """What goes to the server for a client's body."""
    return json.loads(shape(json.dumps(body).encode()).upstream)


def test_a_plain_request_gets_ids_and_logprobs() -> None:
    """A request without the fields of the capture gets them, and nothing else."""
    assert upstream(REQUEST) == {**REQUEST, "return_token_ids": True, "logprobs": True}


def test_a_streamed_request_gets_usage_too() -> None:
    """A stream is asked for its usage, whatever the client said about it; its other options stay."""
    options = {"include_usage": False, "continuous_usage_stats": True}
    body = {**STREAM, "stream_options": options}
    assert upstream(STREAM)["stream_options"] == {"include_usage": True}
    assert upstream(body)["stream_options"] == {**options, "include_usage": True}
    assert shape(json.dumps(body).encode()).asked_usage is False


@pytest.mark.parametrize("field", ["return_token_ids", "logprobs"])
@pytest.mark.parametrize("value", [True, False])
def test_the_clients_own_values_stay(field: str, value: bool) -> None:
    """What the client set is sent as it set it; null counts as not set."""
    assert upstream({**REQUEST, field: value})[field] is value
    assert upstream({**REQUEST, field: None})[field] is True


def test_options_that_are_no_object_are_the_servers_to_refuse() -> None:
    """Nonsense in ``stream_options`` is sent as it is."""
    assert upstream({**STREAM, "stream_options": "yes"})["stream_options"] == "yes"


@given(extra=st.dictionaries(st.text(max_size=12), json_values, max_size=5), stream=st.booleans())
def test_nothing_of_a_request_is_lost(extra: dict[str, Any], stream: bool) -> None:
    """Every field of any JSON object reaches the server with its value, but those that the capture needs."""
    body = {**extra, "stream": stream}
    sent = upstream(body)
    added = {"return_token_ids", "logprobs", *(["stream_options"] if stream else [])}
    assert {name: value for name, value in sent.items() if name not in added} == {
        name: value for name, value in body.items() if name not in added
    }


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"text"', b"null", b"\xff", b'{"a": NaN}', b'{"model": "\xc3"}'])
async def test_a_body_that_is_no_json_object_is_a_400(proxy: Proxy, body: bytes) -> None:
    """Broken JSON, broken UTF-8 and other JSON values are refused in OpenAI's shape, and nothing is admitted."""
    reply = await proxy.post(body)
    assert reply.status == 400
    assert reply.error["code"] == 400
    assert "body" in reply.error["message"]
    assert proxy.store.admitted == 0


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_above_the_limit_is_a_413(engine: EngineStandin, chunked: bool) -> None:
    """A request that is too large is refused, whether it declares its length or not."""
    async with served(engine, max_request_bytes=1_000) as proxy:

        async def pieces() -> Any:
            for _ in range(20):
                yield b"x" * 100

        data: Any = pieces() if chunked else b"x" * 2_000
        async with proxy.client.post(proxy.url + CHAT, data=data) as response:
            assert response.status == 413
            assert "limit is 1,000" in (await response.json())["error"]["message"]
        assert engine.requests == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/rollout/ro-1/attempt/at-2/v1/chat/completions", 404),
        ("/rollout/ro-2/attempt/at-1/v1/chat/completions", 404),
        ("/rollout/ro-1/attempt/latest/v1/chat/completions", 404),
        ("/rollout/ro%2F1/attempt/at-1/v1/chat/completions", 404),
        ("/rollout/%00/attempt/at-1/v1/chat/completions", 404),
        ("/rollout/ro-1/attempt/at-1/pause", 404),
        ("/rollout/ro-1/attempt/at-1/v1/load_lora_adapter", 404),
        ("/rollout/ro-1/attempt/at-1/v1/../pause", 404),
        ("/rollout/ro-1/attempt/at-1/v1/%2e%2e/pause", 404),
        ("/rollout/ro-1/attempt/at-1/v1//chat/completions", 404),
        ("/rollout/ro-1/attempt/at-1/v1/completions", 404),
        ("/rollout/ro-1/attempt/at-1/v1/%63ompletions", 404),
        ("/rollout/ro-1/attempt/at-1/v1/messages", 404),
        ("/rollout/ro-1", 404),
        ("/v1/chat/completions", 404),
        ("/v1/models", 404),
        ("/", 404),
    ],
)
async def test_paths_that_are_nobodys_are_refused(proxy: Proxy, path: str, status: int) -> None:
    """Unknown attempts, unrecorded sampling, the server's administration and calls outside rollouts are refused."""
    reply = await proxy.post(REQUEST, path=path)
    assert reply.status == status
    assert reply.error["code"] == status
    assert reply.headers["x-should-retry"] == "false"
    assert proxy.engine.requests == []
    assert proxy.store.spans == []


async def test_escapes_and_a_final_slash_do_not_evade_the_capture(proxy: Proxy) -> None:
    """However the path of a chat call is spelt, it is recorded."""
    for path in (CHAT + "/", CHAT.replace("chat", "%63hat"), CHAT.replace("ro-1", "ro%2D1")):
        assert (await proxy.post(REQUEST, path=path)).status == 200
    assert len(proxy.store.spans) == 3


async def test_calls_outside_rollouts_may_be_allowed(engine: EngineStandin) -> None:
    """With ``allow_unattributed`` such calls pass untouched and unrecorded; administration still does not."""
    async with served(engine, allow_unattributed=True) as proxy:
        assert (await proxy.post(REQUEST, path="/v1/chat/completions")).status == 200
        assert (await proxy.get("/v1/models")).status == 200
        assert (await proxy.post(REQUEST, path="/pause")).status == 404
        assert engine.requests == [REQUEST]
        assert proxy.store.spans == []


async def test_best_effort_passes_sampling_that_cannot_be_recorded(engine: EngineStandin) -> None:
    """With ``best_effort`` other sampling paths pass unrecorded, for attempts that may still sample."""
    async with served(engine, capture="best_effort") as proxy:
        path = CHAT.replace("chat/completions", "completions")
        assert (await proxy.post(REQUEST, path=path)).status == 200
        proxy.store.admit_error = errors.AttemptEnded("over")
        assert (await proxy.post(REQUEST, path=path)).status == 409


def test_a_path_is_read_from_its_bytes() -> None:
    """Ids are decoded, and the server's path keeps its escapes."""
    raw = b"/rollout/ro%2D1/attempt/at-1/v1/models/a%2Fb"
    place = attribute({"type": "http", "path": "unused", "raw_path": raw})
    assert place is not None
    assert (place.rollout_id, place.attempt_id) == ("ro-1", "at-1")
    assert (place.raw_path, place.path) == (b"/v1/models/a%2Fb", "/v1/models/a/b")


def test_a_server_need_not_give_the_raw_path() -> None:
    """Without the bytes of the path it is encoded anew."""
    place = attribute({"type": "http", "path": "/rollout/ro-1/attempt/at-1/v1/models/ä"})
    assert place is not None
    assert place.raw_path == b"/v1/models/%C3%A4"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("POST", "/v1/chat/completions", Treatment.RECORD),
        ("GET", "/v1/chat/completions", Treatment.PASS),
        ("POST", "/v1/responses", Treatment.UNRECORDED),
        ("GET", "/v1/responses/resp-1", Treatment.PASS),
        ("POST", "/v1/messages/count_tokens", Treatment.PASS),
        ("POST", "/detokenize", Treatment.PASS),
        ("POST", "/inference/v1/generate", Treatment.UNKNOWN),
        ("POST", "/update_weight_version", Treatment.UNKNOWN),
        ("GET", "", Treatment.UNKNOWN),
    ],
)
def test_each_path_has_its_treatment(method: str, path: str, expected: Treatment) -> None:
    """Chat is recorded, other sampling is not let through silently, the rest passes if an agent may need it."""
    assert treatment(method, path) is expected
