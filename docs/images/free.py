"""Draws docs/images/free.png: python docs/images/free.py."""

from pathlib import Path

from matplotlib.figure import Figure

from gequiv import free, laws

PANELS = {
    "Semicircle ⊞ two atoms": laws.Atomic([-2, 2]) + laws.Semicircle(0.8),
    "projection ⊞ projection": laws.Atomic([0, 1], [0.8, 0.2]) + laws.Atomic([0, 1], [0.7, 0.3]),
    "three atoms ⊠ Marchenko–Pastur": laws.Atomic([1, 3, 7]) * laws.MarchenkoPastur(0.06),
    "signal in noise, 2 × as many rows": free.rectangular(
        laws.Atomic([0, 9, 25], [0.8, 0.1, 0.1]), noise_variance=1, ratio=2
    ),
}


def main() -> None:
    figure = Figure(figsize=(9.6, 5.6), layout="constrained")
    axes = figure.subplots(2, 2)
    for ax, (title, law) in zip(axes.flat, PANELS.items(), strict=True):
        law.plot(ax, title=title)
    figure.savefig(Path(__file__).with_suffix(".png"), dpi=160)


if __name__ == "__main__":
    main()
