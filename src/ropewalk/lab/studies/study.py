"""A study: a question, and the runs that answer it, in parts.

Each part is a comparison, encodings × seeds under equal settings: at equal spans, with less data, at another resolution.
Encodings have short names in a study. Its runs lie beside those of other comparisons, so that a study is resumed where
it was stopped, and any of its runs can be made alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from ropewalk.lab.config import Config
from ropewalk.lab.encoding_spec import EncodingSpec, get_encoding_label, parse_encoding
from ropewalk.lab.errors import CommandError
from ropewalk.lab.studies.claims import StudyClaim
from ropewalk.validation import check_choice

NO_OVERRIDES: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class StudyPart:
    """One comparison of a study.

    about      What it compares, in a sentence.
    encodings  Names of encodings in the study; the first is the baseline.
    seeds      Seeds of each encoding.
    settings   Settings that differ from the study's base.
    probed     Whether its runs are probed.
    after      The part from whose runs these are initialized, each from that of its own encoding.
    """

    about: str
    encodings: tuple[str, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, Any] = field(default_factory=dict)
    probed: bool = True
    after: str | None = None


@dataclass(frozen=True)
class Study:
    """A question, encodings by name, the base settings of all parts, the parts by priority, and claims to test."""

    name: str
    question: str
    base: Config
    encodings: Mapping[str, EncodingSpec]
    parts: Mapping[str, StudyPart]
    claims: tuple[StudyClaim, ...] = ()

    def config(self, part: str, overrides: Mapping[str, Any] = NO_OVERRIDES) -> Config:
        """The settings of a part, with overrides that apply to all parts."""
        return replace(self.base, **{**self.parts[part].settings, **overrides})

    def run_config(self, part: str, name: str, seed: int, overrides: Mapping[str, Any] = NO_OVERRIDES) -> Config:
        """The settings of one run of a part, without `start`."""
        encoding = parse_encoding(self.encodings[name])
        return replace(self.config(part, overrides), encoding=encoding.encoding, options=encoding.options, seed=seed)

    def origin_config(self, part: str, name: str, seed: int, overrides: Mapping[str, Any] = NO_OVERRIDES) -> Config:
        """The settings of the run from which one is initialized: with the same seed, or else the first of the other part."""
        after = self.parts[part].after
        assert after is not None
        seeds = self.parts[after].seeds
        return self.run_config(after, name, seed if seed in seeds else seeds[0], overrides)

    def select_parts(self, parts: Sequence[str] = ()) -> list[str]:
        """Check names of parts; all parts if none is given."""
        return [check_choice("part", name, self.parts, error=CommandError) for name in dict.fromkeys(parts)] or list(
            self.parts
        )

    def select_members(self, part: str, only: Sequence[str] = (), seeds: Sequence[int] = ()) -> tuple[list[str], list[int]]:
        """The encodings of a part, restricted to `only`, and its seeds, or those given."""
        for name in only:
            check_choice("encoding", name, self.encodings, of=self.name, error=CommandError)
        if negative := [seed for seed in seeds if seed < 0]:
            raise CommandError(f"seeds must be 0 or more, got {', '.join(map(str, negative))}")
        own = self.parts[part]
        return [name for name in own.encodings if not only or name in only], list(seeds or own.seeds)

    def find_name(self, config: Config) -> str:
        """The name that the encoding of a run has in this study."""
        label = get_encoding_label(config)
        return next(name for name, spec in self.encodings.items() if parse_encoding(spec).label == label)
