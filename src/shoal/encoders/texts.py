"""Texts: words and pairs of words, weighted by how rare they are (TF-IDF), reduced to some directions.

Cutting texts into words is done once per table; a fold chooses its words, their rarities and its directions from its
own training documents. Equal documents are one document with the sum of their weights, in alphabetical order: so the
result depends on the documents and their weights alone, to the bit.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from shoal.encoders.column import ColumnEncoder
from shoal.tables.table import Cells

MOST_WORDS = 10_000  # words and pairs in the vocabulary of one fold
FEWEST_DOCUMENTS = 2  # that a word must be in
MOST_DIRECTIONS = 192
DOCUMENTS_PER_DIRECTION = 8
MOST_DOCUMENTS = 2_500  # from which directions are found: time grows with the cube
WORD = re.compile(r"\b\w\w+\b")
PORTION = 4_000_000  # words that are counted at a time
DENSE_SHARE = 0.05  # of the documents have a frequent word
PAIRS_UP_TO = 40_000_000  # characters; in longer collections single words are enough, and pairs take long


@dataclass(frozen=True, eq=False)
class TextEncoder(ColumnEncoder):
    """One input for each direction of one column of texts; a missing text is all zeros before centring."""

    kind = "text"
    order = 2

    words: tuple[str, ...]  # (v,): single words, then pairs, each sorted
    longest: int  # 1: single words; 2: pairs, too
    rarity: np.ndarray  # (v,) float32: inverse document frequency
    directions: np.ndarray  # (v, k) float32
    centre: np.ndarray  # (k,) float32
    scale: np.ndarray  # (k,) float32, what a direction is multiplied by

    @property
    def width(self) -> int:
        return self.directions.shape[1]

    @cached_property
    def _place(self) -> dict[str, int]:
        """Of each word and pair."""
        return {word: j for j, word in enumerate(self.words)}

    def input_names(self, column: str) -> list[str]:
        return [f"{column}: direction {j + 1}" for j in range(self.width)]

    @classmethod
    def fit(cls, cells: Cells, weight: np.ndarray) -> TextEncoder:
        codes, documents = cells.factor()
        mass = np.bincount(codes, weights=weight, minlength=len(documents))
        used = np.array([j for j, text in enumerate(documents) if mass[j] > 0 and text is not None], dtype=np.int64)
        length = sum(len(documents[j] or "") for j in used)
        longest = 2 if length <= PAIRS_UP_TO else 1
        counts = _counts(cells, longest)
        mass, counts = mass[used], counts.rows(used)
        chosen = counts.frequent()
        words, counts = tuple(counts.names(chosen)), counts.only(chosen)
        rarity = counts.rarity(mass).astype(np.float32)
        matrix = _tfidf(counts.matrix, rarity)
        directions = _directions(matrix, mass, [documents[j] or "" for j in used])
        projected = (matrix @ directions).astype(np.float64)
        total = float(mass.sum()) or 1.0
        centre = (mass[:, None] * projected).sum(axis=0) / total
        spread = np.sqrt((mass[:, None] * (projected - centre) ** 2).sum(axis=0) / total)
        scale = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 1e-6)
        return cls(words, longest, rarity, directions, centre.astype(np.float32), scale.astype(np.float32))

    def write_inputs(self, cells: Cells, out: np.ndarray) -> None:
        """Each different document is worked on once, and its inputs do not depend on the others."""
        codes, _ = cells.factor()
        counts = _counts(cells, self.longest)
        places = counts.places_of(self.words, self._place)
        matrix = _tfidf(counts.moved(places, len(self.words)), self.rarity)
        projected = (matrix @ self.directions - self.centre) * self.scale
        out[:] = np.asarray(projected, dtype=np.float32)[codes]


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each word and pair of words is in each different document.

    Columns have codes, in order: word i has the code i, and the pair of words i and j the code v + i * v + j. So a
    pair is a number until it gets into a vocabulary; most pairs are in one document only and never do.
    """

    words: list[str]  # (v,), sorted: of which the columns are made
    codes: np.ndarray  # (columns,) int64, sorted
    matrix: Any  # (documents, columns) scipy CSR, float32, indices sorted

    @cached_property
    def number(self) -> dict[str, int]:
        return {word: j for j, word in enumerate(self.words)}

    @cached_property
    def _own_names(self) -> list[str]:
        return self.names(np.arange(len(self.codes)))

    def names(self, columns: np.ndarray) -> list[str]:
        """Words, and pairs as two words with a blank between them."""
        v = len(self.words)
        return [
            self.words[code] if code < v else f"{self.words[code // v - 1]} {self.words[code % v]}"
            for code in self.codes[columns].tolist()
        ]

    def places_of(self, names: Sequence[str], place: Mapping[str, int] | None = None) -> np.ndarray:
        """For each column its place in these words and pairs, or -1.

        `place`: of each name. With it, where there are fewer columns than names, columns are looked up among names.
        """
        places = np.full(len(self.codes), -1, dtype=np.int64)
        if not len(self.codes):
            return places
        if place is not None and len(self.codes) < len(names):
            own = self._own_names
            return np.fromiter((place.get(name, -1) for name in own), dtype=np.int64, count=len(own))
        codes = np.array([self._code(name) for name in names], dtype=np.int64)
        columns = np.minimum(np.searchsorted(self.codes, codes), len(self.codes) - 1)
        found = np.flatnonzero(self.codes[columns] == codes)
        places[columns[found]] = found
        return places

    def _code(self, name: str) -> int:
        """The code of a word or pair, or -1 where its words are not there."""
        first, _, second = name.partition(" ")
        i, j = self.number.get(first, -1), self.number.get(second, -1) if second else 0
        return -1 if i < 0 or j < 0 else (i + 1) * len(self.words) + j if second else i

    def rows(self, documents: np.ndarray) -> Counts:
        return replace(self, matrix=self.matrix[documents])

    def only(self, columns: np.ndarray) -> Counts:
        places = np.full(len(self.codes), -1, dtype=np.int64)
        places[columns] = np.arange(len(columns))
        return Counts(self.words, self.codes[columns], self.moved(places, len(columns)))

    def frequent(self) -> np.ndarray:
        """The columns of the words that most documents have, in order. Documents count once, whatever their weight."""
        documents = np.bincount(self.matrix.indices, minlength=len(self.codes))
        candidates = np.flatnonzero(documents >= FEWEST_DOCUMENTS)
        ranked = candidates[np.argsort(-documents[candidates], kind="stable")]
        return np.sort(ranked[:MOST_WORDS])

    def rarity(self, mass: np.ndarray) -> np.ndarray:
        """log((1 + all weight) / (1 + weight of documents with the word)) + 1."""
        row = np.repeat(np.arange(self.matrix.shape[0]), np.diff(self.matrix.indptr))
        having = np.bincount(self.matrix.indices, weights=mass[row], minlength=len(self.codes))
        return np.asarray(np.log((1.0 + mass.sum()) / (1.0 + having)) + 1.0)

    def moved(self, places: np.ndarray, width: int) -> Any:
        """The matrix with column j at places[j], or left out where that is -1. The order of columns is kept."""
        from scipy.sparse import csr_matrix

        columns = places[self.matrix.indices]
        kept = columns >= 0
        ends = np.concatenate([[0], np.cumsum(kept)])[self.matrix.indptr]
        return csr_matrix((self.matrix.data[kept], columns[kept], ends), shape=(self.matrix.shape[0], width))


class _Numbers(dict[str, int]):
    """A number for each different word, in the order of their first look-up."""

    def __missing__(self, word: str) -> int:
        self[word] = number = len(self)
        return number


def _counts(cells: Cells, longest: int) -> Counts:
    documents = cells.factor()[1]
    return cells.remember(("counts", longest), lambda: _count([text or "" for text in documents], longest))


def _count(documents: list[str], longest: int) -> Counts:
    """Words of two characters or more, in lower case, as scikit-learn's CountVectorizer cuts them, but much faster.

    Pairs are made and counted as numbers; some documents at a time, so that little of it is in memory at once.
    """
    from scipy.sparse import csc_matrix, vstack

    numbers = _Numbers()
    found = [np.fromiter(map(numbers.__getitem__, WORD.findall(text.lower())), dtype=np.int32) for text in documents]
    words = sorted(numbers)
    rank = np.empty(len(words), dtype=np.int64)
    rank[[numbers[word] for word in words]] = np.arange(len(words))
    parts = [_cells([rank[ids] for ids in found[some]], len(words), longest) for some in _portions(found, len(words))]
    codes = parts[0].codes if len(parts) == 1 else np.unique(np.concatenate([part.codes for part in parts]))
    blocks = []
    for part in parts:
        having = np.zeros(len(codes) + 1, dtype=np.int64)  # documents of each column; the first place stays zero
        having[1 + np.searchsorted(codes, part.codes)] = part.having
        cells = (part.counts.astype(np.float32), part.documents, np.cumsum(having))
        blocks.append(csc_matrix(cells, shape=(part.n, len(codes))).tocsr())
    return Counts(words, codes, vstack(blocks, format="csr"))


@dataclass(frozen=True, eq=False)
class _Cells:
    """Counts of some documents that are not zero, column by column."""

    n: int  # documents
    codes: np.ndarray  # (columns,) sorted
    having: np.ndarray  # (columns,) documents with it
    documents: np.ndarray  # (cells,)
    counts: np.ndarray  # (cells,)


def _cells(found: list[np.ndarray], v: int, longest: int) -> _Cells:
    n = len(found)
    ids = np.concatenate(found)
    document = np.repeat(np.arange(n), [len(part) for part in found])
    keys = [ids * n + document]
    if longest > 1:
        together = np.flatnonzero(document[1:] == document[:-1])
        keys.append(((ids[together] + 1) * v + ids[together + 1]) * n + document[together])
    key = np.sort(np.concatenate(keys))  # np.unique would make a hash table, which takes longer
    first = np.flatnonzero(np.diff(key, prepend=-1))
    counts = np.diff(first, append=len(key))
    code, document = np.divmod(key[first], n)
    begun = np.flatnonzero(np.diff(code, prepend=-1))
    return _Cells(n, code[begun], np.diff(begun, append=len(code)), document, counts)


def _portions(found: list[np.ndarray], v: int) -> list[slice]:
    """Documents in portions of about PORTION words, and few enough for their cells to have numbers of 63 bits."""
    most = max(1, (1 << 62) // (v * v + v + 1))
    portions, begun, total = [], 0, 0
    for j, ids in enumerate(found, 1):
        total += len(ids)
        if total >= PORTION or j - begun >= most or j == len(found):
            portions.append(slice(begun, j))
            begun, total = j, 0
    return portions


def _tfidf(counts: Any, rarity: np.ndarray) -> Any:
    """Rows of length one: (1 + log(count)) * rarity, normed. A row without known words stays zero."""
    matrix = counts.copy()
    matrix.data = (1.0 + np.log(matrix.data)) * rarity[matrix.indices]
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    length = np.sqrt(np.bincount(row, weights=matrix.data.astype(np.float64) ** 2, minlength=matrix.shape[0]))
    matrix.data = (matrix.data / length[row]).astype(np.float32)
    return matrix


def most_directions(documents: int) -> int:
    """The number of directions for so many documents, if they have enough words."""
    return min(MOST_DIRECTIONS, max(2, documents // DOCUMENTS_PER_DIRECTION))


def _directions(matrix: Any, mass: np.ndarray, documents: list[str]) -> np.ndarray:
    """(v, k): leading right singular vectors of the weighted rows, by way of the documents' inner products, exactly.

    Of very many documents a part is taken. A checksum of each document decides, so other documents and their order do
    not matter.
    """
    from scipy.linalg import eigh
    from threadpoolctl import threadpool_limits

    if matrix.shape[0] > MOST_DOCUMENTS:
        order = sorted(range(len(documents)), key=lambda j: (zlib.crc32(documents[j].encode()), documents[j]))
        part = np.sort(np.array(order[:MOST_DOCUMENTS]))
        matrix, mass = matrix[part], mass[part]
    n = matrix.shape[0]
    k = min(most_directions(n), *matrix.shape)
    if k == 0:
        return np.zeros((matrix.shape[1], 0), dtype=np.float32)
    root = np.sqrt(mass / mass.max()).astype(np.float32)
    with threadpool_limits(1):  # more threads change the last bits, and wait for each other when the machine is busy
        products = _inner_products(matrix) * root[:, None] * root
        strength, vectors = eigh(products, subset_by_index=(n - k, n - 1))
    kept = np.flatnonzero(strength > 1e-6 * max(float(strength[-1]), 1e-30))[::-1]
    directions = matrix.T @ (vectors[:, kept] * root[:, None] / np.sqrt(strength[kept]))
    largest = np.argmax(np.abs(directions), axis=0)
    signs = np.where(directions[largest, np.arange(len(kept))] < 0, -1.0, 1.0)  # the sign of a vector is arbitrary
    return np.ascontiguousarray(directions * signs, dtype=np.float32)


def _inner_products(matrix: Any) -> np.ndarray:
    """(documents, documents): a dense product over frequent words, a sparse one over rare ones: that is fast."""
    documents = np.bincount(matrix.indices, minlength=matrix.shape[1])
    frequent = documents > DENSE_SHARE * matrix.shape[0]
    columns = matrix.tocsc()
    dense, sparse = columns[:, frequent].toarray(), columns[:, ~frequent].tocsr()
    return np.asarray(dense @ dense.T + (sparse @ sparse.T).toarray())
