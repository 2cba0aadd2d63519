"""Commands, their options, and what their ends mean."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

import click
import typer

from .. import __version__
from ..util.errors import InputError, RunError
from . import bench, data, diagnose, flower, list_, report, reproduce, run, sweep

app = typer.Typer(
    help="Federated learning on heterogeneous data: FedBR, its baselines, and honest comparisons.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
app.command("run")(run.run)
app.command("reproduce")(reproduce.reproduce)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("diagnose")(diagnose.diagnose)
app.command("list")(list_.list_)
app.command("bench")(bench.bench)
app.add_typer(data.app, name="data")
app.add_typer(flower.app, name="flower")

# options that take several values; what a value has in it
SPREAD = {"--set": "=", "--grid": "=", "--methods": "", "--workload": ""}


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    if version:
        typer.echo(f"fedbr {__version__}")
        raise typer.Exit


def call(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code."""
    try:
        code = typer.main.get_command(app)(
            args=spread(arguments), prog_name="fedbr", standalone_mode=False
        )
        sys.stdout.flush()
        return int(code or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        typer.echo(error.format_message())
        return 0
    except click.exceptions.Abort:
        return 130
    except click.ClickException as error:
        return fail(" ".join(error.format_message().split()), 2)
    except InputError as error:
        return fail(str(error), 2)
    except RunError as error:
        return fail(str(error), 1)
    except (BrokenPipeError, SystemExit):  # the reader of our output went away, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # such as a disk that is full
        return fail(f"{error.strerror or error}: {error.filename or ''}".rstrip(": "), 1)


def fail(message: str, code: int) -> int:
    print(f"fedbr: {message}", file=sys.stderr)
    return code


def spread(arguments: Sequence[str]) -> list[str]:
    """Let an option have several values: --methods a b becomes --methods a --methods b."""
    out: list[str] = []
    option = None
    for argument in arguments:
        if argument.startswith("--") and out and out[-1] == option:
            raise InputError(f"{option}: a value is wanted before {argument}")
        if argument in SPREAD:
            option = argument
        elif option and out[-1] != option:  # it has a value already: is this another one?
            if argument.startswith("-") or SPREAD[option] not in argument:
                option = None
            else:
                out.append(option)
        out.append(argument)
    return out
