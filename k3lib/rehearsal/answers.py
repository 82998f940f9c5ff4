"""
What the rehearsal says. No language model: a few honest skills, so that functional probes pass for a reason that is
known.

It repeats a text it is told to repeat, recalls a fact stated earlier in the conversation, adds two numbers, fills the
arguments of a tool from its schema and the request, and otherwise talks about itself. The same request and seed give
the same answer.
"""

from __future__ import annotations

import hashlib
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from k3lib.rehearsal.tokenizer import message_text, split_tokens

_REASONING_SENTENCES = {"low": 1, "high": 2, "max": 3}
_STOP_WORDS = """
a an and are as be by did do does for from i in is it me my of on or our tell that the this to us was we what which who
you your answer only please remember one word name give say reply exactly
"""
_STOP = frozenset(_STOP_WORDS.split())
_STATEMENT = re.compile(
    r"(?:remember(?: that)?:?\s+)?\b(?:my|the|our|this)\s+([\w' -]{2,60}?)\s+(?:is|was|are|equals|=)\s*:?\s*"
    r"[\"'“`]?([^\"'”`.,;!?\n]{1,80})",
    re.IGNORECASE,
)
_REMEMBER = re.compile(
    r"\bremember(?: this| that)?(?: (?:word|number|code))?\s*[:=]?\s+[\"'“`]?([\w-]{2,40})", re.IGNORECASE
)
_REPEAT = re.compile(
    r"\b(?:reply|answer|respond|say|repeat|write|output)\b[^.:\n]{0,60}?(?:exactly|only|just|word|text|:)\s*:?\s*"
    r"[\"'“`]([^\"'”`\n]{1,200})[\"'”`]",
    re.IGNORECASE,
)
_REPEAT_BARE = re.compile(
    r"\b(?:reply|answer|respond) with (?:exactly|only|just)?:?\s*(?:the word )?([A-Za-z0-9-]+)\b", re.I
)
_SUM = re.compile(r"(-?\d+)\s*(\+|-|\*|×|x|plus|minus|times)\s*(-?\d+)", re.IGNORECASE)
_FILLER = (
    "This text comes from the rehearsal engine of K3 Workbook.",
    "No language model produced it, and no GPU was used.",
    "Its length and its pace follow a model of Kimi K3.",
    "Only the shape of the answer means something here.",
    "A real engine would answer your request at this place.",
    "The words repeat because they were never meant to inform.",
    "Read the counters beside it, not the sentences in it.",
)


@dataclass(frozen=True)
class Answer:
    """
    What will be said, as token pieces.

    Args:
        reasoning: Thinking, before the answer.
        content: The answer; empty when a tool is called.
        tool_name: Tool that is called, or None.
        tool_arguments: Its arguments as JSON text, as token pieces.
    """

    reasoning: list[str]
    content: list[str]
    tool_name: str | None = None
    tool_arguments: tuple[str, ...] = ()

    @property
    def length(self) -> int:
        """Tokens in all, the end token not counted."""
        return len(self.reasoning) + len(self.content) + len(self.tool_arguments) + 3 * (self.tool_name is not None)


def compose_answer(body: Mapping[str, Any], effort: str | None, seed: int) -> Answer:
    """
    The answer to one chat request.

    Args:
        body: The request as it came; messages, tools and tool_choice are read.
        effort: `low`, `high`, `max`, or None for no thinking.
        seed: The engine's; the request's own seed is part of the body.
    """
    messages = body["messages"]
    question = message_text(messages[-1])
    draw = random.Random(f"{seed}:{_fingerprint(body)}")
    tool = _choose_tool(body, question)
    if tool is not None:
        arguments = json.dumps(_fill_arguments(tool.get("parameters") or {}, question))
        reasoning = _think(effort, f"The request needs the tool {tool['name']}.", draw)
        return Answer(reasoning, [], str(tool["name"]), tuple(split_tokens(arguments)))
    known = _find_skill(messages, question)
    thought = "The answer stands in the conversation." if known else "Nothing in the request needs a skill of mine."
    return Answer(_think(effort, thought, draw), split_tokens(known or _talk(messages, draw)))


def _fingerprint(body: Mapping[str, Any]) -> str:
    kept = {key: body.get(key) for key in ("messages", "tools", "tool_choice", "seed")}
    return hashlib.sha256(json.dumps(kept).encode()).hexdigest()


def _think(effort: str | None, thought: str, draw: random.Random) -> list[str]:
    if effort is None:
        return []
    return split_tokens(" ".join([thought, *draw.sample(_FILLER, _REASONING_SENTENCES[effort])]))


def _talk(messages: Sequence[Mapping[str, Any]], draw: random.Random) -> str:
    asked = " ".join(message_text(message).lower() for message in messages)
    count = 1 if re.search(r"one (?:short )?sentence|briefly|short answer", asked) else draw.randint(6, 14)
    return " ".join(draw.choice(_FILLER) for _ in range(count))


def _find_skill(messages: Sequence[Mapping[str, Any]], question: str) -> str | None:
    if messages[-1].get("role") == "tool":
        return f"The tool returned: {question}"
    told = _REPEAT.search(question) or _REPEAT_BARE.search(question)
    recalled = _recall(messages, question)
    if recalled and not (told and told.re is _REPEAT):
        return recalled
    if term := _SUM.search(question):
        return _calculate(term)
    return told[1] if told else None


def _calculate(term: re.Match[str]) -> str:
    left, right = int(term[1]), int(term[3])
    sign = term[2].lower()
    if sign in {"+", "plus"}:
        return str(left + right)
    return str(left - right) if sign in {"-", "minus"} else str(left * right)


def _recall(messages: Sequence[Mapping[str, Any]], question: str) -> str | None:
    """The stated fact whose words the question shares most; later statements win over earlier ones."""
    asked = _words(question)
    best, best_score = None, 0
    for message in messages[:-1]:
        if message.get("role") == "assistant":
            continue
        text = message_text(message)
        for match in _STATEMENT.finditer(text):
            score = len(_words(match[1]) & asked)
            if score and score >= best_score:
                best, best_score = f"The {match[1].strip()} is {match[2].strip()}.", score
        noted = _REMEMBER.search(text)
        if noted and best is None and _raw(question) & {"remember", "remembered", "earlier", "before"}:
            best = f"You asked me to remember {noted[1]}."
    return best


def _raw(text: str) -> set[str]:
    return set(re.findall(r"[a-z0-9]+", text.lower()))


def _words(text: str) -> set[str]:
    return _raw(text) - _STOP


def _choose_tool(body: Mapping[str, Any], question: str) -> Mapping[str, Any] | None:
    tools = [tool["function"] for tool in body.get("tools") or ()]
    choice = body.get("tool_choice", "auto")
    if not tools or choice == "none" or body["messages"][-1].get("role") == "tool":
        return None
    if isinstance(choice, dict):
        name = (choice.get("function") or {}).get("name")
        return next((tool for tool in tools if tool["name"] == name), None)
    asked = _words(question)
    scores = [
        len(asked & _words(f"{tool['name'].replace('_', ' ')} {tool.get('description', '')}"))
        + (tool["name"] in question)
        for tool in tools
    ]
    best = max(range(len(tools)), key=scores.__getitem__)
    return tools[best] if scores[best] or choice == "required" else None


def _fill_arguments(schema: Mapping[str, Any], question: str) -> dict[str, Any]:
    """Arguments that satisfy the schema, taken from the request where it offers something."""
    properties = schema.get("properties") or {}
    wanted = schema.get("required") or list(properties)
    return {name: _fill(name, properties.get(name) or {}, question) for name in wanted}


def _fill(name: str, schema: Mapping[str, Any], question: str) -> Any:
    if options := schema.get("enum"):
        return next((option for option in options if str(option).lower() in question.lower()), options[0])
    kind = schema.get("type", "string")
    if kind in {"integer", "number"}:
        digits = re.search(r"-?\d+(?:\.\d+)?", question)
        number = float(digits[0]) if digits else 0.0
        return int(number) if kind == "integer" else number
    if kind == "boolean":
        return True
    if kind == "array":
        return []
    if kind == "object":
        return _fill_arguments(schema, question)
    return _guess_text(name, question)


def _guess_text(name: str, question: str) -> str:
    quoted = re.search(r"[\"'“`]([^\"'”`]+)[\"'”`]", question)
    if quoted:
        return quoted[1]
    # A capitalised word that does not open a sentence is the likeliest name: "the weather in Paris".
    named = re.search(r"(?<=[a-z,] )([A-Z][\w-]+(?: [A-Z][\w-]+)*)", question)
    if named:
        return named[1]
    after = re.search(rf"\b{re.escape(name)}\b\W+(\w+)", question, re.IGNORECASE)
    return after[1] if after else (question.split() or ["unknown"])[-1].strip(".,;:?!")
