"""What the trained encoding is: how far it turns across the image of training, and by how much scores change when all move.

Where turns commute, each plane of channels has a wave vector, and turns by its length across the image. Where they do not,
there are no wave vectors, and the frequencies of each axis alone take their place.
"""

from collections.abc import Sequence

from ropewalk.encoding import Encoding
from ropewalk.lab.inspect.figure_grid import get_axis_names
from ropewalk.lab.inspect.frequency_spectrum import FrequencySpectrum, compute_frequency_spectrum
from ropewalk.lab.inspect.theory_facts import TokenShift, convert_to_float64, measure_patch_steps, measure_shift_change
from ropewalk.lab.probes.probe import Probe, ProbeRows
from ropewalk.lab.tasks.trained_images import ImageRun
from ropewalk.theory.commuting import turns


def probe_frequencies(opened: ImageRun) -> ProbeRows:
    """Radians across the image of every plane of all heads of a layer, in ascending order.

    Those of a wave vector are its length. If not `combined`, they are of planes of the axes' generators, all axes together.
    """
    try:
        return compute_layer_frequencies(opened.encoding, opened.grid, opened.depth)
    except ValueError as error:
        return [{"why": str(error)}]


def compute_layer_frequencies(encoding: Encoding, grid: Sequence[int], depth: int) -> ProbeRows:
    """The same of an encoding on a grid, for so many layers."""
    found = _compute_spectra(encoding, grid, depth)
    lengths = [each.radians.norm(dim=-1) if each.combined else each.radians.abs() for each in found]
    return [
        {"layer": i, "radians": radians.flatten().sort().values.tolist(), "combined": each.combined}
        for i, (each, radians) in enumerate(zip(found, lengths, strict=True))
    ]


def probe_wave_vectors(opened: ImageRun) -> ProbeRows:
    """Wave vectors of every plane of all heads of a layer, in radians across the image along each axis."""
    try:
        found = _compute_spectra(opened.encoding, opened.grid, opened.depth)
    except ValueError as error:
        return [{"why": str(error)}]
    if not all(each.combined for each in found):
        return [{"why": f"turns of {opened.encoding.name} along different axes do not commute: it has no wave vectors"}]
    return [{"layer": i, "vectors": each.radians.flatten(0, -2).tolist()} for i, each in enumerate(found)]


def _compute_spectra(encoding: Encoding, grid: Sequence[int], depth: int) -> list[FrequencySpectrum]:
    """Of each layer."""
    exactly = convert_to_float64(encoding)
    return [compute_frequency_spectrum(exactly, grid, layer=layer) for layer in range(depth)]


def probe_equivariance(opened: ImageRun) -> ProbeRows:
    """The change of scores when all tokens move by one patch along an axis: of all heads, expected and at worst.

    As `ropewalk.theory.equivariance` defines them: 0 for a relative encoding, and never more than 2 at worst for rotations.
    """
    encoding, grid = convert_to_float64(opened.encoding), opened.grid
    if not turns(encoding):
        return [{"why": f"{encoding.name} does not rotate q and k by generators: theory gives no bound for its scores"}]
    shifts = [TokenShift(axis, 1.0, step) for axis, step in enumerate(measure_patch_steps(encoding, grid))]
    (worst, expected, _), _ = measure_shift_change(encoding, grid, shifts)  # (L h A)
    names, root = get_axis_names(len(grid)), expected.square().mean(1).sqrt()
    return [
        {"layer": i, "axis": name, "expected": root[i, axis].item(), "worst": worst[i, :, axis].max().item()}
        for i in range(opened.depth)
        for axis, name in enumerate(names)
    ]


FREQUENCIES = Probe(
    name="frequencies",
    summary="Radians by which each channel pair of the trained encoding rotates across the image.",
    measure=probe_frequencies,
    tasks=("classify",),
)
WAVE_VECTORS = Probe(
    name="waves",
    summary="Wave vectors of each channel pair, if rotations along different axes commute.",
    measure=probe_wave_vectors,
    tasks=("classify",),
)
EQUIVARIANCE = Probe(
    name="equivariance",
    summary="Change of the attention scores when all tokens move by one patch.",
    measure=probe_equivariance,
    tasks=("classify",),
)
