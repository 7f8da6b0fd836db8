"""Which of ComRoPE's percentages follow from its tables."""

from .page import Finding, table

RESOLUTIONS = (112, 128, 192, 224, 256, 320, 384, 448, 512)
# ImageNet top-1 by method and perturbation, trained at 224: ComRoPE's Table 1.
ACCURACY = {
    ("APE", 1): (30.04, 38.69, 56.4, 58.76, 60.02, 59.27, 57.04, 54.10, 50.99),
    ("APE", 0): (19.71, 33.43, 55.97, 58.62, 55.31, 52.63, 49.68, 46.39, 42.66),
    ("RoPE", 1): (36.94, 45.48, 60.72, 63.09, 63.24, 62.12, 59.24, 55.51, 51.11),
    ("RoPE", 0): (36.41, 44.48, 59.97, 62.03, 62.54, 61.36, 58.56, 54.79, 50.58),
    ("LieRE", 1): (38.03, 46.97, 62.22, 64.36, 64.99, 63.78, 61.15, 57.92, 53.74),
    ("LieRE", 0): (38.22, 46.85, 62.01, 64.07, 64.54, 63.46, 60.74, 56.89, 52.51),
    ("AP", 1): (35.75, 46.18, 62.82, 65.32, 65.83, 64.78, 61.88, 58.21, 54.02),
    ("AP", 0): (37.17, 46.95, 62.63, 64.76, 65.11, 64.35, 61.62, 58.10, 53.81),
    ("LD", 1): (38.30, 47.28, 63.53, 65.49, 65.95, 65.27, 62.62, 59.11, 55.29),
    ("LD", 0): (36.88, 46.54, 62.89, 65.27, 65.66, 64.27, 61.83, 57.87, 53.64),
}


def top1(method: str, sigma: int, resolution: int) -> float:
    """An entry of the table."""
    return ACCURACY[method, sigma][RESOLUTIONS.index(resolution)]


def gain(method: str, over: str, *, resolution: int, sigma: int = 1, over_sigma: int | None = None) -> float:
    """By how many per cent one entry exceeds another, relative to the other."""
    other = top1(over, sigma if over_sigma is None else over_sigma, resolution)
    return 100 * (top1(method, sigma, resolution) / other - 1)


def over_liere(resolution: int) -> dict[str, float]:
    """The gains of both ComRoPEs over LieRE at one resolution, over all pairs of perturbations."""
    return {
        f"{method} σ = {sigma} over LieRE σ = {other}": gain(
            method, "LieRE", resolution=resolution, sigma=sigma, over_sigma=other
        )
        for method in ("AP", "LD")
        for sigma in (1, 0)
        for other in (1, 0)
    }


def finding() -> Finding:
    """The section."""
    at_512, at_224 = gain("LD", "LieRE", resolution=512), over_liere(224)
    same = [f"{at_224[f'{method} σ = {sigma} over LieRE σ = {sigma}']:.2f}" for method in ("LD", "AP") for sigma in (1, 0)]
    nearest = min(at_224, key=lambda name: abs(at_224[name] - 1.6))
    ape, ape_224 = (gain("APE", "APE", resolution=r, over_sigma=0) for r in (512, 224))
    ld = gain("LD", "LD", resolution=512, over_sigma=0)
    points = top1("LD", 1, 512) - top1("LieRE", 1, 512)
    rows = [
        (
            "2.9 % over LieRE at higher resolution",
            f"LD over LieRE at 512², σ = 1: {at_512:.2f} %, {points:.2f} points",
            "yes",
        ),
        ("1.6 % over LieRE at training resolution", f"at 224², LD σ = 1 and 0, AP σ = 1 and 0: {', '.join(same)} %", "no"),
        ("perturbation gives APE 19.5 %", f"at 512²: {ape:.2f} % ({ape_224:.2f} % at 224²)", "yes"),
        ("perturbation gives LD 2.9 %", f"at 512²: {ld:.2f} %", "no"),
    ]
    text = f"""
ComRoPE gives its gains in per cent of the other method's accuracy, as a footnote says. Recomputed from its own Table 1:

{table(("stated", "from Table 1", "reproduces"), rows)}

Of the eight pairs of a ComRoPE and LieRE at 224² the nearest to 1.6 is {nearest}, {at_224[nearest]:.2f} %. The table's
numbers are rounded to a hundredth of a point, which cannot make up for it.

Convergence in detection, 29 % fewer iterations than APE, is LieRE's as much as ComRoPE's in the paper's Figure 4.
Differences of accuracy are clearer as points with an interval over seeds than as ratios of accuracies.
"""
    return Finding(
        name="percentages",
        title="Not all of ComRoPE's percentages follow from its tables",
        number=f"2.9 % is {at_512:.2f}; 1.6 % is {same[0]} or {same[2]}",
        where="ComRoPE, paper",
        here="–",
        text=text,
    )
