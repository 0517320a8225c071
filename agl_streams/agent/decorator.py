"""The `rollout` decorator: a function becomes an agent, its parameters are filled in by name."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, TypeVar

from agl_streams.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from agl_streams.agent.context import AttemptContext

P = ParamSpec("P")
R = TypeVar("R")

PROVIDED: Final[dict[str, Callable[[AttemptContext], object]]] = {
    "llm": lambda context: context.llm(),
    "prompt_template": lambda context: context.prompt_template(),
    "rollout": lambda context: context.rollout,
    "context": lambda context: context,
}
"""What a parameter of this name gets."""

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Agent(Generic[P, R]):
    """A function that works on tasks. Calling it calls the function, for its own tests.

    The first parameter whose name is not in `PROVIDED` gets the task. The others get what their name says; a parameter
    with a default keeps it where the resources lack what it asks for.
    """

    def __init__(self, function: Callable[P, R]) -> None:
        """Wrap a function, plain or async.

        Raises:
            InvalidRequest: it is a generator, or has a parameter that nobody provides.
        """
        functools.update_wrapper(self, function)
        self.function = function
        self.name: str = getattr(function, "__qualname__", None) or type(function).__qualname__
        forms = (function, function.__call__)  # a function, or an object that is called like one
        if any(inspect.isgeneratorfunction(form) or inspect.isasyncgenfunction(form) for form in forms):
            raise InvalidRequest(
                f"agent {self.name} is a generator; return the reward or the spans instead of yielding"
            )
        self.is_async = any(inspect.iscoroutinefunction(form) for form in forms)
        self._parameters = _check_parameters(self.name, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Agent {self.name}>"

    def bind(self, context: AttemptContext) -> Callable[[], R]:
        """The call of the function for an attempt, all arguments filled in.

        Raises:
            NotFound: the rollout's resources lack what a parameter asks for.
        """
        args: list[object] = []
        kwargs: dict[str, object] = {}
        for parameter in self._parameters:
            try:
                value = PROVIDED[parameter.name](context) if parameter.name in PROVIDED else context.rollout.input
            except NotFound:
                if parameter.default is inspect.Parameter.empty:
                    raise
                value = parameter.default
            if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
                kwargs[parameter.name] = value
            else:
                args.append(value)
        call: Callable[..., R] = self.function
        return functools.partial(call, *args, **kwargs)


def rollout(function: Callable[P, R]) -> Agent[P, R]:
    """Decorate a function as an agent::

        @rollout
        async def solve(task, llm):
            client = AsyncOpenAI(base_url=llm.endpoint, api_key=llm.api_key or "none")
            ...
            return 1.0

    Parameters by name: ``llm`` (an `LLM` whose endpoint is this attempt's base URL), ``prompt_template``, ``rollout``
    (the `AttemptedRollout`), ``context`` (the `AttemptContext`); the first other one gets the task. The function may
    return a number, its final reward; a list of spans; or nothing. A plain function runs in a thread of its own.

    Raises:
        InvalidRequest: the function is a generator, or has a parameter that nobody provides.
    """
    return Agent(function)


def _check_parameters(name: str, function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The parameters to fill in: the task's and the provided ones."""
    taken: list[inspect.Parameter] = []
    has_task = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in _VARIADIC:
            continue
        if parameter.name not in PROVIDED:
            if has_task and parameter.default is inspect.Parameter.empty:
                raise InvalidRequest(
                    f"agent {name} has the parameter {parameter.name!r}, which nothing provides; "
                    f"besides the task there are {', '.join(PROVIDED)}"
                )
            if has_task:
                continue
            has_task = True
        taken.append(parameter)
    return taken
