"""The word problems: what makes one valid, and what the committed file is like."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from agl_streams.demo.compose import compose_problems, compose_vocabulary, write_files
from agl_streams.demo.problems import Problem, load_problems
from agl_streams.demo.prompts import first_message, next_message
from agl_streams.demo.tools import TOOLS, use_tool
from agl_streams.errors import InvalidRequest

FOLDER = Path(__file__).resolve().parents[2] / "agl_streams" / "demo"

VALID: dict[str, Any] = {
    "id": "p-1",
    "text": "Maya packs 6 boxes with 9 candles in each box. She sells 14 candles. How many are left?",
    "steps": [
        {
            "given": "Maya packs 6 boxes with 9 candles in each box.",
            "ask": "How many candles are in all the boxes?",
            "tool": "multiply",
            "numbers": [6, 9],
        },
        {"given": "She sells 14 candles.", "ask": "How many are left?", "tool": "subtract", "numbers": [None, 14]},
    ],
    "answer": 40,
}


def changed(**fields: Any) -> dict[str, Any]:
    """The valid problem with other fields."""
    return {**VALID, **fields}


def changed_step(index: int, **fields: Any) -> dict[str, Any]:
    """The valid problem with other fields in one step."""
    steps = [dict(step) for step in VALID["steps"]]
    steps[index].update(fields)
    return changed(steps=steps)


def written(path: Path, *problems: Any) -> Path:
    """A file of these lines."""
    path.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    return path


def test_there_are_two_hundred_problems_and_more() -> None:
    """The project brings at least 200 problems, no two of them with the same text or id."""
    problems = load_problems()
    assert len(problems) >= 200
    assert len({problem.text for problem in problems}) == len(problems)


def test_every_pair_of_tools_comes_up_equally_often() -> None:
    """No tool is a better guess than another, whatever the step."""
    pairs = Counter(tuple(step.tool for step in problem.steps) for problem in load_problems())
    assert len(pairs) == len(TOOLS) ** 2
    assert len(set(pairs.values())) == 1


def test_the_committed_files_are_what_the_stories_give(tmp_path: Path) -> None:
    """Composing again writes the committed problems and vocabulary, byte for byte."""
    write_files(tmp_path)
    for name in ("problems.jsonl", "vocabulary.txt"):
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes(), name


def test_the_texts_read_as_sentences() -> None:
    """A text has no empty slot and no doubled space, begins with a capital or a number and ends with its question."""
    for problem in load_problems():
        assert not set("{}") & set(problem.text), problem.id
        assert "  " not in problem.text, problem.id
        assert problem.text[0].isupper() or problem.text[0].isdigit(), problem.id
        assert problem.text.endswith(f"{problem.steps[-1].ask}"), problem.id
        assert problem.text.endswith("?"), problem.id


def test_the_vocabulary_knows_most_words() -> None:
    """At least nine of ten words that the agent writes are one token; names and rare words are spelt in bytes."""
    problems = compose_problems()
    known = {piece.strip() for piece in compose_vocabulary(problems)}
    words = [word.strip(".,?:") for problem in problems for word in first_message(problem).split()]
    letters = [word for word in words if word.isalpha()]
    assert sum(word in known for word in letters) >= 0.9 * len(letters)


def test_messages_put_the_step_on_the_last_line() -> None:
    """The last line of each message holds the step and nothing else."""
    problem = Problem.model_validate(VALID)
    assert first_message(problem).splitlines() == [
        problem.text,
        "Step 1: Maya packs 6 boxes with 9 candles in each box. How many candles are in all the boxes?",
    ]
    assert next_message(problem, 1, "multiply", 54.0).splitlines() == [
        "The tool multiply gives 54.",
        "Step 2: She sells 14 candles. How many are left?",
    ]


def test_the_right_tools_solve_a_problem() -> None:
    """The steps' own tools lead to the answer, others do not."""
    problem = Problem.model_validate(VALID)
    assert problem.is_answer(problem.solve(["multiply", "subtract"]))
    assert not problem.is_answer(problem.solve(["multiply", "add"]))


def test_what_is_no_tool_leaves_the_number() -> None:
    """An unknown tool, or a division by zero, leaves the result of the step before."""
    step = Problem.model_validate(VALID).steps[1]
    assert step.apply("guess", 54.0) == 54.0
    assert use_tool("divide", 54.0, 0.0) is None


@pytest.mark.parametrize(
    ("problem", "complaint"),
    [
        (changed(answer=41), "not the answer 41"),
        (changed(steps=VALID["steps"][:1]), "at least 2"),
        (changed_step(0, tool="guess"), "tool"),
        (changed_step(0, numbers=[None, 9]), "no result before it"),
        (changed_step(0, numbers=[6]), "numbers"),
        ({**changed_step(1, tool="add", numbers=[None, 0]), "answer": 54}, "gives the answer 54 too"),
        (changed(text=""), "text"),
        (changed(level=3), "level"),
        ({key: value for key, value in VALID.items() if key != "id"}, "id"),
        ("a text", "problem"),
    ],
)
def test_a_bad_problem_is_named_by_its_line(tmp_path: Path, problem: Any, complaint: str) -> None:
    """Loading a file with a bad problem says which line it is and what is wrong."""
    path = written(tmp_path / "mine.jsonl", VALID, problem)
    with pytest.raises(InvalidRequest, match=r"mine\.jsonl line 2") as caught:
        load_problems(path)
    assert complaint in str(caught.value)


def test_a_repeated_id_is_refused(tmp_path: Path) -> None:
    """Two problems of one file have different ids."""
    path = written(tmp_path / "mine.jsonl", VALID, VALID)
    with pytest.raises(InvalidRequest, match="line 2: the id 'p-1' comes twice"):
        load_problems(path)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    """A file without problems cannot be trained on."""
    with pytest.raises(InvalidRequest, match="holds no problems"):
        load_problems(written(tmp_path / "mine.jsonl"))
