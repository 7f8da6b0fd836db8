"""A study: a question, and the runs that answer it, in parts.

Each part is a comparison, encodings × seeds under the same settings, of which a study has several because it asks several
things: at equal spans, with less data, at another resolution. Encodings have short names in a study. Runs are kept as those
of any comparison, so that a study goes on where it was stopped, and any row of it can be made alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import EncodingSpec, get_encoding_label, parse_encoding
from ropewalk.lab.errors import CommandError
from ropewalk.validation import check_choice


@dataclass(frozen=True)
class StudyPart:
    """One comparison of a study.

    about      What it asks, in a sentence.
    encodings  Their names in the study; the first is what others are compared with.
    seeds      Of each.
    settings   Those that differ from the study's own.
    probed     Whether its runs are probed.
    after      The part whose runs it begins with, each with that of its own encoding.
    """

    about: str
    encodings: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    probed: bool = True
    after: str | None = None


@dataclass(frozen=True)
class Study:
    """A question, encodings by name, the settings that all parts share, and the parts, in the order of their worth."""

    name: str
    question: str
    base: Config
    encodings: Mapping[str, EncodingSpec]
    parts: Mapping[str, StudyPart]

    def config(self, part: str, given: Mapping[str, Any]) -> Config:
        """The settings of a part, some of them replaced for all parts."""
        return replace(self.base, **{**self.parts[part].settings, **given})

    def of(self, part: str, name: str, seed: int, given: Mapping[str, Any]) -> Config:
        """The settings of a run of a part, but for the one that it begins with."""
        said = parse_encoding(self.encodings[name])
        return replace(self.config(part, given), encoding=said.encoding, options=said.options, seed=seed)

    def chosen(self, parts: Sequence[str] = ()) -> list[str]:
        """Parts that there are: those given, or all."""
        return [check_choice("part", name, self.parts, error=CommandError) for name in dict.fromkeys(parts)] or list(
            self.parts
        )

    def members(self, part: str, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> tuple[list[str], list[int]]:
        """The encodings and seeds of a part, or those of them that are asked for."""
        own = self.parts[part]
        for name in only:
            check_choice("encoding", name, self.encodings, of=self.name, error=CommandError)
        if strange := [seed for seed in seeds if seed < 0]:
            raise CommandError(f"seeds must be 0 or more, got {', '.join(map(str, strange))}")
        return [name for name in own.encodings if not only or name in only], list(seeds or own.seeds)

    def named(self, config: Config) -> str:
        """The name that the encoding of a run has in this study."""
        label = get_encoding_label(config)
        return next(name for name, said in self.encodings.items() if parse_encoding(said).label == label)
