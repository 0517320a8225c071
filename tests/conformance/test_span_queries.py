"""Queries for spans: filters, how they are joined, order, pages."""

from __future__ import annotations

from typing import Any, cast

from agentlightning import LightningStoreClient
from agentlightning.types import Span

from tests.conformance.compare import Both, Notes

ORDERS = ["sequence_id", "trace_id", "span_id", "parent_id", "name", "start_time", "end_time", "rollout_id"]
PAGES = [(-1, 0), (2, 0), (2, 3), (1, 5), (100, 1), (-1, 4), (3, 50)]
BAD_PAGES = [(0, 0), (-3, 0), (5, -1)]
ROWS = [
    # span, trace, parent, name, number, start, end
    ("1a", "t1", None, "root", 1, 10.0, 20.0),
    ("1b", "t1", "1a", "step", 3, 12.0, None),
    ("1c", "t2", "1a", "Step two", 2, 11.0, 15.0),
    ("2a", "t2", "1b", "reward", 4, 11.0, 13.0),
    ("2b", "t3", None, "", 5, 11.0, 12.0),
    ("2c", "x9", "zz", "step", 0, None, None),
]


async def six(client: LightningStoreClient) -> tuple[str, str]:
    """A rollout with six spans, four of its first attempt and two of its second; its id and the first attempt's."""
    first = await client.start_rollout(1)
    second = await client.start_attempt(first.rollout_id)
    for number, (span_id, trace_id, parent_id, name, sequence_id, start, end) in enumerate(ROWS):
        made = Span.from_attributes(
            attributes={"row": number},
            rollout_id=first.rollout_id,
            attempt_id=(first if number < 4 else second).attempt.attempt_id,
            sequence_id=sequence_id,
            trace_id=trace_id,
            span_id=span_id,
            parent_id=parent_id,
            start_time=start,
            end_time=end,
        )
        await client.add_span(made.model_copy(update={"name": name}))
    other = await client.start_rollout(2)
    await client.add_span(
        made.model_copy(update={"rollout_id": other.rollout_id, "attempt_id": other.attempt.attempt_id})
    )
    return first.rollout_id, first.attempt.attempt_id


async def test_spans_are_found_by_attempt(both: Both) -> None:
    """Spans are those of the rollout, of one attempt, or of the newest; of unknown ones there are none."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id, attempt_id = await six(client)
        await note("all", client.query_spans(rollout_id))
        await note("first", client.query_spans(rollout_id, attempt_id))
        await note("latest", client.query_spans(rollout_id, "latest"))
        await note("unknown attempt", client.query_spans(rollout_id, "at-unknown"))
        await note("unknown rollout", client.query_spans("ro-unknown"))
        await note("latest of unknown", client.query_spans("ro-unknown", "latest"))
        queued = await client.enqueue_rollout(3)
        await note("of a queued one", client.query_spans(queued.rollout_id, "latest"))

    await both.same(scenario)


async def test_spans_are_found_by_their_fields(both: Both) -> None:
    """Each field filters by its value and by a part of it, upper and lower case apart; null has no parts."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id, attempt_id = await six(client)
        filters: list[dict[str, Any]] = [
            {"trace_id": "t1"}, {"trace_id": "t"}, {"trace_id_contains": "t"}, {"trace_id_contains": "9"},
            {"span_id": "1b"}, {"span_id": "1"}, {"span_id_contains": "1"}, {"span_id_contains": ""},
            {"parent_id": "1a"}, {"parent_id": ""}, {"parent_id_contains": "1"}, {"parent_id_contains": ""},
            {"name": "step"}, {"name": "Step"}, {"name": ""}, {"name_contains": "tep"}, {"name_contains": "STEP"},
            {"name": "step", "trace_id": "t1"}, {"name_contains": "step", "trace_id_contains": "x"},
            {"name": "root", "trace_id": "x9", "filter_logic": "or"},
            {"parent_id": "1a", "name_contains": "rew", "span_id": "2b", "filter_logic": "or"},
            {"name": "none such", "filter_logic": "or"},
            {"attempt_id": attempt_id, "name": "step"},
            {"attempt_id": attempt_id, "name": "step", "span_id": "2b", "filter_logic": "or"},
            {"attempt_id": "latest", "name_contains": "", "filter_logic": "or"},
            {"trace_id": "t2", "limit": 1, "offset": 1}, {"parent_id_contains": "1", "sort_by": "name"},
        ]  # fmt: skip
        for number, fields in enumerate(filters):
            found = await client.query_spans(rollout_id, **fields)
            note.value(f"filter {number}", ([span.span_id for span in found], found.limit, found.offset, found.total))
        await note("bad logic", client.query_spans(rollout_id, filter_logic=cast("Any", "nor")))

    await both.same(scenario)


async def test_spans_of_one_number_come_in_the_order_of_their_times(both: Both) -> None:
    """Spans with the same number are told apart by their start, then by their end."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        started = await client.start_rollout(1)
        ids = {"rollout_id": started.rollout_id, "attempt_id": started.attempt.attempt_id}
        for span_id, start, end in (("c", 2.0, 5.0), ("b", 1.0, 4.0), ("a", 1.0, 3.0)):
            times = {"start_time": start, "end_time": end}
            await client.add_span(Span.from_attributes(attributes={}, sequence_id=1, span_id=span_id, **times, **ids))
        found = await client.query_spans(started.rollout_id)
        note.value("order", "".join(span.span_id for span in found))

    await both.same(scenario)


async def test_an_or_of_no_span_filter(both: Both) -> None:
    """With a logic and nothing to join, the rollout alone counts."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id, _ = await six(client)
        found = await client.query_spans(rollout_id, filter_logic="or")
        note.value("total", found.total)

    await both.same(scenario)


async def test_spans_are_sorted(both: Both) -> None:
    """Spans come by number, then start, then end; or in the order of any plain field, both ways."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id, _ = await six(client)
        for name in ORDERS:
            for order in ("asc", "desc"):
                found = await client.query_spans(rollout_id, sort_by=name, sort_order=cast("Any", order))
                note.value(f"{name} {order}", [getattr(span, name) for span in found])
                note.value(f"{name} {order}, all there", sorted(span.span_id for span in found))
        found = await client.query_spans(rollout_id)
        note.value("by default", [span.span_id for span in found])
        await note("unsorted", client.query_spans(rollout_id, sort_by=None))
        await note("bad field", client.query_spans(rollout_id, sort_by="reward"))
        await note("bad order", client.query_spans(rollout_id, sort_order=cast("Any", "down")))

    await both.same(scenario)


async def test_spans_come_in_pages(both: Both) -> None:
    """Limit and offset cut a page out and are told with the total; impossible ones are refused."""

    async def scenario(client: LightningStoreClient, note: Notes) -> None:
        rollout_id, _ = await six(client)
        for limit, offset in PAGES:
            await note(f"{limit}, {offset}", client.query_spans(rollout_id, limit=limit, offset=offset))
        for limit, offset in BAD_PAGES:
            await note(f"{limit}, {offset} is bad", client.query_spans(rollout_id, limit=limit, offset=offset))

    await both.same(scenario)
