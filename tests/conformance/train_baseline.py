"""A training run on agentlightning's public API: ``train_baseline.py URL`` works on the store at that URL.

Sixteen training and four validation tasks, two runner processes, spans by OTLP. It prints how long the run took.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # otherwise litellm looks for prices on the network

import agentlightning as agl

TRAINING_TASKS = 16
VALIDATION_TASKS = 4


@agl.rollout
def agent(task: dict[str, Any], prompt_template: agl.PromptTemplate) -> float:
    """Emit a message, an operation and a reward; a final reward is what is returned: four spans."""
    agl.emit_message(prompt_template.format(**task))
    with agl.operation(kind="think") as operation:
        operation.set_input(x=task["x"])
        operation.set_output(task["x"] * 2)
    agl.emit_reward(0.25)
    return 1.0 if task["x"] % 2 == 0 else 0.0


def main(url: str) -> None:
    """Train on the store at ``url``."""
    agl.setup_logging("INFO")
    trainer = agl.Trainer(
        algorithm=agl.Baseline(polling_interval=0.2, max_queue_length=32),
        n_runners=2,
        store=agl.LightningStoreClient(url),
        tracer=agl.OtelTracer(),
        strategy={"type": "cs", "managed_store": False},
        initial_resources={"prompt_template": agl.PromptTemplate(template="x is {x}", engine="f-string")},
    )
    began = time.monotonic()
    trainer.fit(
        agent,
        train_dataset=[{"x": number} for number in range(TRAINING_TASKS)],
        val_dataset=[{"x": number} for number in range(VALIDATION_TASKS)],
    )
    print("FIT DONE", time.monotonic() - began)


if __name__ == "__main__":
    main(sys.argv[1])
