"""The demo: an agent that learns to choose tools, from the first rollout to a policy that solves word problems.

Read it in the order in which a rollout flows: ``problems`` and ``prompts`` (the tasks), ``tokenizer``, ``policy`` and
``policy_server`` (the model), ``agent`` (who asks it), ``training`` and ``learner`` (who learns from the records),
``stage`` and ``run`` (the processes around them). It needs the extra ``demo``.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from agl_streams.errors import ConfigError

NEEDS: Final = ("matplotlib", "numpy", "openai")

missing = [name for name in NEEDS if find_spec(name) is None]
if missing:
    raise ConfigError(f"the demo needs {', '.join(missing)}, of the extra 'demo': pip install 'agl-streams[demo]'")
