"""Twelve prompts, three of them longer than 600 tokens."""

_LOG = "\n".join(
    f"2026-03-{day:02} 0{day % 10}:1{day % 6} worker-{day % 4} {'ERROR disk nearly full' if day % 7 == 3 else 'ok'}"
    for day in range(1, 29)
)
_CODE = "\n\n".join(
    f"def {name}_{i}(values):\n    total = {i}\n    for value in values:\n        total {sign}= value\n    return total"
    for i, (name, sign) in enumerate([("add", "+"), ("scale", "*"), ("drop", "-")] * 8)
)
_STORY = " ".join(
    f"On day {day} the ferry left the island at {day % 12 + 1} o'clock with {day * 3} crates of oranges and came back."
    for day in range(1, 26)
)

PROMPTS = [
    "Why is the sky blue?",
    "Write a limerick about a compiler.",
    "Write a Python function that checks whether a word is a palindrome.",
    "List the planets of the solar system, one per line.",
    "Translate into French: The library is open until nine in the evening.",
    "What is 17 times 23? Show the steps.",
    'Give me a JSON object with the keys "name" and "age" for Ada, 36.',
    "Erzähle in zwei Sätzen von einem Leuchtturm. 🙂",
    "Continue: a b c a b c a b c",
    f"Which lines report errors?\n\n{_LOG}",
    f"Explain this module.\n\n{_CODE}",
    f"Summarize this diary.\n\n{_STORY}",
]
