"""Text to token ids and back: a fixed list of word pieces, and single bytes for everything else.

Any text has ids, and the ids of a text give that text back. Ids: the control tokens first, then the 256 bytes, then the
pieces of ``vocabulary.txt`` in file order. Text never encodes to a control token, so a message cannot end itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib.resources import files
from typing import Final

from agl_streams.errors import InvalidRequest

CONTROL_TOKENS: Final = ("<|system|>", "<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
ROLES: Final = ("system", "user", "assistant", "tool")
_BYTES: Final = 256


class Tokenizer:
    """The vocabulary of the policy.

    Attributes:
        size: number of ids; every id is below it.
        end_id: the token that ends a message and, sampled, the answer.
        assistant_id: the token after which the answer begins.
        newline_id: the token of a line break.
        first_piece_id: ids from here on are word pieces.
    """

    def __init__(self, pieces: Sequence[str]) -> None:
        self._bytes: list[bytes] = [name.encode() for name in CONTROL_TOKENS]
        self._bytes += [bytes([value]) for value in range(_BYTES)]
        self.first_piece_id = len(self._bytes)
        self._bytes += [piece.encode() for piece in pieces]
        self._ids = {piece: self.first_piece_id + index for index, piece in enumerate(pieces)}
        # A piece is whole words and marks, so the longest run of letters is the only candidate at any place.
        self._candidates = re.compile(r" ?[A-Za-z]+|[^A-Za-z]", re.DOTALL)
        self.size = len(self._bytes)
        self.end_id = CONTROL_TOKENS.index("<|end|>")
        self.assistant_id = CONTROL_TOKENS.index("<|assistant|>")
        self.newline_id = self._byte_id(ord("\n"))

    @classmethod
    def load(cls) -> Tokenizer:
        """The tokenizer of the project's vocabulary."""
        text = files("agl_streams.demo").joinpath("vocabulary.txt").read_text(encoding="utf-8")
        return cls(text.splitlines())

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``; lone surrogates, which no UTF-8 has, become ``?``."""
        return [token for part in self._candidates.findall(text) for token in self._encode_part(part)]

    def encode_chat(self, messages: Iterable[tuple[str, str]]) -> list[int]:
        """The prompt ids of (role, content) pairs, up to the place where the assistant's answer begins.

        Raises:
            InvalidRequest: a role that is none of ``ROLES``.
        """
        ids: list[int] = []
        for role, content in messages:
            if role not in ROLES:
                raise InvalidRequest(f"no message has the role {role!r}; there are {', '.join(ROLES)}")
            ids += [ROLES.index(role), *self.encode(content), self.end_id]
        return [*ids, self.assistant_id]

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token: of a control token, those of its name."""
        return self._bytes[token_id]

    def is_control(self, token_id: int) -> bool:
        """Whether the token is no text."""
        return token_id < len(CONTROL_TOKENS)

    def is_piece(self, token_id: int) -> bool:
        """Whether the token is a word piece, and not a byte or a control token."""
        return token_id >= self.first_piece_id

    def piece_id(self, piece: str) -> int:
        """The id of a piece of the vocabulary.

        Raises:
            KeyError: it is not in the vocabulary.
        """
        return self._ids[piece]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of the ids, control tokens left out, broken UTF-8 replaced."""
        text = b"".join(self._bytes[token] for token in ids if not self.is_control(token))
        return text.decode(errors="replace")

    def show(self, ids: Iterable[int]) -> str:
        """The text of the ids with the control tokens by name."""
        return b"".join(self._bytes[token] for token in ids).decode(errors="replace")

    def _encode_part(self, part: str) -> list[int]:
        known = self._ids.get(part)
        if known is not None:
            return [known]
        return [self._byte_id(value) for value in part.encode(errors="replace")]

    def _byte_id(self, value: int) -> int:
        return len(CONTROL_TOKENS) + value
