"""Short texts about Python's standard library, and a network that predicts their section.

The texts are docstrings of the standard library, read from its source, and passages of the language
reference that `help()` shows. Both are part of Python, so nothing is downloaded.
"""

import ast
import random
import re
import sysconfig
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from pydoc_data.topics import topics
from typing import Self

import torch
from torch import nn

# Packages of each section. Their names would give the answer away, so texts do not contain them.
SECTIONS = {
    "async": ("asyncio",),
    "email": ("email",),
    "importing": ("importlib",),
    "language": (),
    "logging": ("logging",),
    "processes": ("multiprocessing", "concurrent"),
    "testing": ("unittest",),
    "web": ("http", "urllib", "wsgiref", "xmlrpc"),
    "xml": ("xml",),
}
NAMES = tuple(SECTIONS)
MOST_OF_A_SECTION = 300
FEWEST_WORDS, MOST_WORDS = 8, 48
MOST_KNOWN_WORDS = 3_000
_PACKAGES = frozenset(name for packages in SECTIONS.values() for name in packages)
_WORD = re.compile(r"[a-z]+")


@dataclass(frozen=True)
class Text:
    """A text and the name of its section."""

    text: str
    section: str


def words_of(text: str) -> list[str]:
    """Return the words of a text, without those that would give its section away."""
    return [word for word in _WORD.findall(text.lower()) if word not in _PACKAGES]


def read_texts() -> tuple[list[Text], list[Text]]:
    """Return the training texts, and a fifth of all texts for testing."""
    texts = []
    for section, packages in SECTIONS.items():
        passages = _docstrings(packages) if packages else _passages()
        chosen = sorted({passage for passage in passages if len(words_of(passage)) >= FEWEST_WORDS})
        random.Random(0).shuffle(chosen)  # noqa: S311  (a split, no secret)
        texts += [Text(passage, section) for passage in chosen[:MOST_OF_A_SECTION]]
    random.Random(1).shuffle(texts)  # noqa: S311
    test_size = len(texts) // 5
    return texts[test_size:], texts[:test_size]


def _docstrings(packages: Sequence[str]) -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    for package in packages:
        for file in sorted((library / package).rglob("*.py")):
            module = ast.parse(file.read_text(encoding="utf-8"))
            for node in ast.walk(module):
                if isinstance(
                    node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
                ):
                    yield ast.get_docstring(node) or ""


def _passages() -> Iterator[str]:
    for topic in topics.values():
        yield from re.split(r"\n\s*\n", topic)


class Network(nn.Module):
    """A transformer encoder over words, mean pooling, and one score per section."""

    def __init__(self, known_words: int, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(known_words, width, padding_idx=0)
        self.positions = nn.Embedding(MOST_WORDS, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.2, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, len(NAMES))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of a batch of texts, given as word ids padded with 0."""
        is_padding = words == 0
        positions = torch.arange(words.shape[1], device=words.device)
        encoded = self.encoder(
            self.words(words) + self.positions(positions), src_key_padding_mask=is_padding
        )
        mask = (~is_padding).unsqueeze(2)
        mean: torch.Tensor = (encoded * mask).sum(1) / mask.sum(1)
        scores: torch.Tensor = self.scores(mean)
        return scores


class Sections:
    """A text classifier: a network with its vocabulary."""

    def __init__(self, known: Sequence[str], network: Network | None = None) -> None:
        self.known = list(known)
        self._ids = {word: number for number, word in enumerate(self.known, start=2)}
        self.network = network or Network(len(self.known) + 2)

    @classmethod
    def of(cls, texts: Sequence[Text]) -> Self:
        """Return an untrained classifier that knows the words that occur at least twice."""
        counts = Counter(word for text in texts for word in words_of(text.text))
        frequent = [word for word, count in counts.most_common(MOST_KNOWN_WORDS) if count > 1]
        return cls(frequent)

    @classmethod
    def load(cls, file: str | Path) -> Self:
        """Read a file that `save` wrote. No code in the file is run."""
        saved = torch.load(file, weights_only=True)
        sections = cls(saved["known"])
        sections.network.load_state_dict(saved["weights"])
        return sections

    def save(self, file: str | Path) -> None:
        """Write the vocabulary and the weights."""
        torch.save({"known": self.known, "weights": self.network.state_dict()}, file)

    def ids_of(self, texts: Sequence[str]) -> torch.Tensor:
        """Return texts as word ids: 0 for padding, 1 for unknown words."""
        rows = [[self._ids.get(word, 1) for word in words_of(text)] for text in texts]
        length = min(MOST_WORDS, max((len(row) for row in rows), default=0)) or 1
        # A text without words becomes one unknown word, so that its mean has a divisor.
        return torch.tensor([((row or [1]) + [0] * length)[:length] for row in rows])

    def predict(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return the section of each text and its confidence, from 0 to 1."""
        self.network.eval()
        with torch.inference_mode():
            confidences, best = self.network(self.ids_of(texts)).softmax(1).max(1)
        return [
            (NAMES[index], confidence)
            for index, confidence in zip(best.tolist(), confidences.tolist(), strict=True)
        ]
