"""Reads spans with agl-streams: ``our_reader.py REDIS_URL NAMESPACE ROLLOUT_ID …`` prints JSON lines."""

from __future__ import annotations

import asyncio
import json
import sys

from agl_streams import StreamStore, load_settings, semconv


async def main(redis_url: str, namespace: str, rollout_ids: list[str]) -> None:
    """Print for each rollout what its spans say, in their order, and what the store has added up."""
    settings = load_settings(redis_url=redis_url, namespace=namespace)
    async with await StreamStore.connect(settings=settings) as store:
        await store.settle()
        for rollout_id in rollout_ids:
            spans = await store.query_spans(rollout_id)
            sums = await store.rollout_sums(rollout_id)
            found = {
                "names": [span.name for span in spans],
                "rewards": [value for span in spans if (value := semconv.reward_value(span)) is not None],
                "messages": [
                    span.attributes[semconv.MESSAGE_BODY] for span in spans if span.name == semconv.AGL_MESSAGE
                ],
                "objects": [
                    span.attributes[semconv.OBJECT_JSON] for span in spans if semconv.OBJECT_JSON in span.attributes
                ],
                "exceptions": [
                    [span.attributes[semconv.EXCEPTION_TYPE], span.attributes[semconv.EXCEPTION_MESSAGE]]
                    for span in spans
                    if span.name == semconv.AGL_EXCEPTION
                ],
                "operations": [
                    {key: value for key, value in span.attributes.items() if key.startswith("agentlightning.operation")}
                    for span in spans
                    if any(key.startswith(semconv.OPERATION_NAME) for key in span.attributes)
                ],
                "sums": {"spans": sums.spans, "rewards": sums.rewards, "reward": sums.reward},
            }
            print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
