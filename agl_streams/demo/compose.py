"""Writes the word problems of the demo, and the vocabulary that covers them.

``python -m agl_streams.demo.compose`` writes ``problems.jsonl`` and ``vocabulary.txt`` beside this file. The same
stories give the same files, which a test compares with the committed ones.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
import pydantic

from agl_streams.demo.problems import Problem, Step
from agl_streams.demo.prompts import SYSTEM_PROMPT, first_message, next_message
from agl_streams.demo.stories import STORIES
from agl_streams.demo.story import Story
from agl_streams.demo.tools import TOOLS

SEED = 20
PROBLEMS_PER_STORY = 5  # 240 problems: three and a half batches before one comes a second time
# A piece that only one story uses costs a column of the policy's weights and teaches nothing that transfers.
MIN_USES = 4
WORD = re.compile(r" ?[A-Za-z]+|[.,?]")

# Name, subject pronoun, object pronoun.
PEOPLE = (
    ("Amira", "she", "her"),
    ("Ben", "he", "him"),
    ("Chloe", "she", "her"),
    ("Dario", "he", "him"),
    ("Esra", "she", "her"),
    ("Farid", "he", "him"),
    ("Greta", "she", "her"),
    ("Hugo", "he", "him"),
    ("Ines", "she", "her"),
    ("Jonas", "he", "him"),
    ("Keiko", "she", "her"),
    ("Luca", "he", "him"),
    ("Maya", "she", "her"),
    ("Noah", "he", "him"),
    ("Olga", "she", "her"),
    ("Pavel", "he", "him"),
)


def compose_problems() -> list[Problem]:
    """All problems, shuffled so that neighbours in the file tell different stories."""
    rng = random.Random(SEED)
    stories = [story for story in STORIES for _ in range(PROBLEMS_PER_STORY)]
    rng.shuffle(stories)
    seen: set[str] = set()
    problems: list[Problem] = []
    for number, story in enumerate(stories, start=1):
        problem = next(p for p in _tellings(story, f"wp-{number:03d}", rng) if p.text not in seen)
        seen.add(problem.text)
        problems.append(problem)
    return problems


def compose_vocabulary(problems: Sequence[Problem]) -> list[str]:
    """The pieces that come up often enough in what the agent writes to the model, and the tools, sorted."""
    uses: Counter[str] = Counter()
    for problem in problems:
        uses.update(WORD.findall(problem.text))
        uses.update(WORD.findall(first_message(problem)))
        uses.update(WORD.findall(next_message(problem, 1, "add", 1.0)))
    pieces = {piece for piece, count in uses.items() if count >= MIN_USES}
    pieces -= {prefix + name for name, _, _ in PEOPLE for prefix in ("", " ")}
    pieces.update(WORD.findall(SYSTEM_PROMPT), TOOLS)
    return sorted(pieces)


def _tellings(story: Story, problem_id: str, rng: random.Random) -> Iterator[Problem]:
    """Tellings of a story in endless supply, without those whose numbers come out odd or let another tool pass."""
    while True:
        words = _draw_words(story, rng)
        numbers = {name: rng.randint(*bounds) for name, bounds in zip("abc", story.ranges, strict=True)}
        try:
            yield _tell(story, problem_id, words, numbers)
        except pydantic.ValidationError:
            continue


def _draw_words(story: Story, rng: random.Random) -> dict[str, str]:
    person, friend = rng.sample(PEOPLE, 2)
    words = {slot: rng.choice(choices) for slot, choices in story.slots.items()}
    return words | {
        "name": person[0],
        "She": person[1].capitalize(),
        "she": person[1],
        "her": person[2],
        "friend": friend[0],
    }


def _tell(story: Story, problem_id: str, words: dict[str, str], numbers: dict[str, int]) -> Problem:
    given, asks = (
        [sentence.format(**words, **numbers) for sentence in sentences] for sentences in (story.given, story.asks)
    )
    second = (numbers["c"], None) if story.swapped else (None, numbers["c"])
    operands: tuple[tuple[int | None, int | None], ...] = ((numbers["a"], numbers["b"]), second)
    steps = tuple(
        Step.model_validate({"given": told, "ask": ask, "tool": tool, "numbers": pair})
        for told, ask, tool, pair in zip(given, asks, story.tools, operands, strict=True)
    )
    middle = steps[0].apply(story.tools[0], 0.0)
    answer = steps[1].apply(story.tools[1], middle)
    if not (middle.is_integer() and answer.is_integer() and min(middle, answer) > 1):
        raise pydantic.ValidationError.from_exception_data("the numbers do not come out even", [])
    return Problem(id=problem_id, text=" ".join([*given, asks[-1]]), steps=steps, answer=int(answer))


def write_files(folder: Path) -> None:
    """Write ``problems.jsonl`` and ``vocabulary.txt`` into ``folder``."""
    problems = compose_problems()
    lines = [orjson.dumps(problem.model_dump()) for problem in problems]
    folder.joinpath("problems.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    folder.joinpath("vocabulary.txt").write_text("\n".join(compose_vocabulary(problems)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write_files(Path(__file__).parent)
