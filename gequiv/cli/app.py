"""Commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gequiv.cli.campaign import app as campaign_app
from gequiv.cli.derive import derive
from gequiv.cli.errors import OneLineErrors
from gequiv.cli.inspect import inspect
from gequiv.cli.options import (
    DEFAULTS,
    Alibi,
    Beta,
    Covariance,
    Format,
    HeadDim,
    Json,
    Keys,
    LawName,
    LawOption,
    Mask,
    Method,
    Tokens,
    Width,
)
from gequiv.cli.temperature import temperature

app = typer.Typer(
    cls=OneLineErrors,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from gequiv._version import __version__

        typer.echo(f"gequiv {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def gequiv(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Singular values of softmax attention matrices: their law, and the proof by simulation.

    An attention head with random weights is A = row-softmax(β S) with
    scores S = Q Kᵀ/√head-dim. Everything here is about the squared singular
    values of √keys (A - 1/keys), or with a mask or a bias of √keys (A - Ā),
    where Ā is what the weights average to.

    [bold]gequiv validate[/bold] draws attention matrices and says whether the law holds.
    [bold]gequiv predict[/bold] prints the law.
    [bold]gequiv derive[/bold] derives it, step by step.
    [bold]gequiv inspect[/bold] says of real heads which are random, and what is not random in the others.
    [bold]gequiv temperature[/bold] chooses β for a wanted entropy, gap or rank, and draws schedules over lengths.
    [bold]gequiv campaign[/bold] runs thousands of draws and reports on them.

    Exit codes: 0 done; 1 the verdict failed, or needs more draws; 2 bad
    input; 3 a law could not be certified; 4 workers were lost; 130
    interrupted.
    """
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


@app.command()
def predict(
    tokens: Tokens = DEFAULTS.tokens,
    head_dim: HeadDim = DEFAULTS.head_dim,
    beta: Beta = DEFAULTS.beta,
    keys: Keys = None,
    width: Width = None,
    covariance: Covariance = None,
    mask: Mask = None,
    alibi: Alibi = None,
    law: LawOption = LawName.AUTO,
    method: Method = None,
    rescaled: Annotated[
        bool,
        typer.Option(
            "--rescaled",
            help="Divide by e^(β²) - 1, the mean: the shape of the limit law, which exists for every β, also above "
            "26.64.",
        ),
    ] = False,
    singular_values: Annotated[
        bool, typer.Option("--singular-values", help="The law of the singular values instead of their squares.")
    ] = False,
    points: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            show_default="16 in a table, 500 otherwise",
            help="Number of points for density and distribution function; they follow the mass and crowd at the edges.",
        ),
    ] = None,
    format_: Annotated[
        Format | None,
        typer.Option("--format", show_default="by the suffix of --output, else table", help="What to print or write."),
    ] = None,
    json_: Json = False,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default="standard output", help="Where to write it."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the density into a .png, .pdf or .svg file.")
    ] = None,
) -> None:
    """Print the law: linear model, support, atoms, outliers, moments, certificate, density, distribution function.

    Without --law the finite-size law is taken if it differs from that of the
    limit theorem by more than sampling noise; the distance of the two is told.

    Examples:

    [cyan]gequiv predict --tokens 2000 --head-dim 64 --beta 1
    gequiv predict --tokens 1000 --keys 4000 --output law.csv
    gequiv predict --head-dim 50 --singular-values --plot law.png
    gequiv predict --points 2000 --output law.npz
    gequiv predict --width 768 --covariance 1.6,0.9,0.5 --json
    gequiv predict --beta 40 --rescaled
    gequiv predict --head-dim 64 --mask causal --alibi 0.0625 --plot causal.png[/cyan]
    """
    from gequiv.cli import predict as command
    from gequiv.cli.options import head_from

    form = command.resolve_format(format_, json_, output)
    command.check_files(form, output, plot)
    head = head_from(tokens, head_dim, beta, keys, width, covariance, mask, alibi)
    command.run(
        head,
        wish=law.value,
        method=None if method is None else method.value,
        rescaled=rescaled,
        singular_values=singular_values,
        points=points,
        form=form,
        output=output,
        plot=plot,
    )


@app.command()
def validate(
    tokens: Tokens = DEFAULTS.tokens,
    head_dim: HeadDim = DEFAULTS.head_dim,
    beta: Beta = DEFAULTS.beta,
    keys: Keys = None,
    width: Width = None,
    covariance: Covariance = None,
    mask: Mask = None,
    alibi: Alibi = None,
    law: LawOption = LawName.AUTO,
    method: Method = None,
    samples: Annotated[
        int, typer.Option(metavar="N", help="Attention matrices to draw; as many of the linear model go with them.")
    ] = DEFAULTS.samples,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Seed of the draws; the same seed repeats them.")] = 0,
    tolerance: Annotated[
        float, typer.Option(metavar="X", help="Largest Kolmogorov–Smirnov distance that counts as agreement.")
    ] = 0.05,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            show_default="gequiv-validate.png, none with --json",
            help="Draw histogram, law and Marchenko–Pastur into a .png, .pdf or .svg file.",
        ),
    ] = None,
    no_plot: Annotated[bool, typer.Option("--no-plot", help="Draw nothing.")] = False,
    json_: Json = False,
) -> None:
    """Draw attention matrices, compare their spectrum with the law, and say whether it holds.

    Without --law that is the finite-size law if it differs from that of the
    limit theorem by more than sampling noise; the distances to both are told.
    What the distance to the limit law is made of is told with it: sampling
    noise (the spread over draws), finite-size bias (attention against its
    linear model at the same size) and solver error. The exit code is 1 if the
    law failed, or if it needs more draws to tell.

    Examples:

    [cyan]gequiv validate
    gequiv validate --tokens 2000 --head-dim 1000 --beta 1 --samples 4
    gequiv validate --beta 0.5 --samples 4 --seed 0 --json
    gequiv validate --tokens 1500 --keys 500 --head-dim 300 --plot tall.png
    gequiv validate --head-dim 1000 --width 1000 --tolerance 0.02
    gequiv validate --tokens 2048 --head-dim 64 --samples 4
    gequiv validate --tokens 2048 --head-dim 64 --mask window:256 --samples 4
    gequiv validate --head-dim 64 --law limit[/cyan]
    """
    from gequiv.cli import validate as command
    from gequiv.cli.options import head_from

    picture = command.resolve_plot(plot, no_plot=no_plot, as_json=json_)
    head = head_from(tokens, head_dim, beta, keys, width, covariance, mask, alibi)
    code = command.run(
        head,
        wish=law.value,
        method=None if method is None else method.value,
        samples=samples,
        seed=seed,
        tolerance=tolerance,
        plot=picture,
        as_json=json_,
    )
    raise typer.Exit(code)


app.command()(derive)
app.command()(inspect)
app.command()(temperature)
app.add_typer(campaign_app, name="campaign")

__all__: list[Any] = ["app"]
