"""Short texts about Python's own library, each with its section, and a network that tells which.

The texts are docstrings of the standard library, read from its source, and passages of the language
reference that `help()` shows. Both come with Python; nothing is downloaded.
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
    """Return the texts to train with and, a fifth of all, those to test with."""
    found = []
    for section, packages in SECTIONS.items():
        passages = _docstrings(packages) if packages else _passages()
        kept = sorted({one for one in passages if len(words_of(one)) >= FEWEST_WORDS})
        random.Random(0).shuffle(kept)  # noqa: S311  (a split, no secret)
        found += [Text(one, section) for one in kept[:MOST_OF_A_SECTION]]
    random.Random(1).shuffle(found)  # noqa: S311
    held = len(found) // 5
    return found[held:], found[:held]


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
    """A transformer encoder over words, the mean of what it makes of them, and one score each."""

    def __init__(self, known_words: int, *, width: int = 64, layers: int = 2) -> None:
        super().__init__()
        self.words = nn.Embedding(known_words, width, padding_idx=0)
        self.places = nn.Embedding(MOST_WORDS, width)
        layer = nn.TransformerEncoderLayer(
            width, 4, 2 * width, dropout=0.2, batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.scores = nn.Linear(width, len(NAMES))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the scores of a batch of texts, given as numbers of words, 0 where none is."""
        is_none = words == 0
        places = torch.arange(words.shape[1], device=words.device)
        seen = self.encoder(self.words(words) + self.places(places), src_key_padding_mask=is_none)
        kept = (~is_none).unsqueeze(2)
        mean: torch.Tensor = (seen * kept).sum(1) / kept.sum(1)
        scored: torch.Tensor = self.scores(mean)
        return scored


class Sections:
    """A network with the words it knows: what is saved, loaded and asked."""

    def __init__(self, known: Sequence[str], network: Network | None = None) -> None:
        self.known = list(known)
        self._numbers = {word: number for number, word in enumerate(self.known, start=2)}
        self.network = network or Network(len(self.known) + 2)

    @classmethod
    def of(cls, texts: Sequence[Text]) -> Self:
        """Return an untrained one that knows the words which occur twice or more in texts."""
        counted = Counter(word for one in texts for word in words_of(one.text))
        often = [word for word, count in counted.most_common(MOST_KNOWN_WORDS) if count > 1]
        return cls(often)

    @classmethod
    def load(cls, file: str | Path) -> Self:
        """Read what `save` wrote. No code in the file is run."""
        saved = torch.load(file, weights_only=True)
        found = cls(saved["known"])
        found.network.load_state_dict(saved["weights"])
        return found

    def save(self, file: str | Path) -> None:
        """Write the words and the weights."""
        torch.save({"known": self.known, "weights": self.network.state_dict()}, file)

    def numbers_of(self, texts: Sequence[str]) -> torch.Tensor:
        """Return texts as numbers of words: 0 where there is none, 1 where it is not known."""
        read = [[self._numbers.get(word, 1) for word in words_of(text)] for text in texts]
        length = min(MOST_WORDS, max((len(one) for one in read), default=0)) or 1
        # A text without words becomes one unknown word, so that its mean has a divisor.
        return torch.tensor([((one or [1]) + [0] * length)[:length] for one in read])

    def tell(self, texts: Sequence[str]) -> list[tuple[str, float]]:
        """Return the section of each text and how sure that is, from 0 to 1."""
        self.network.eval()
        with torch.inference_mode():
            sure, best = self.network(self.numbers_of(texts)).softmax(1).max(1)
        return [(NAMES[at], share) for at, share in zip(best.tolist(), sure.tolist(), strict=True)]
