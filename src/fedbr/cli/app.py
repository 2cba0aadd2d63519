"""The commands of ``fedbr``, options that take several values, and exit codes."""

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

# Options that take several values -> what each of their values contains.
SEVERAL_VALUES = {"--set": "=", "--grid": "=", "--methods": "", "--workload": ""}


@app.callback(invoke_without_command=True)
def root(version: bool = typer.Option(False, "--version", help="Show the version.")) -> None:
    # No docstring: typer would print it as the help of fedbr.
    if version:
        typer.echo(f"fedbr {__version__}")
        raise typer.Exit


def call(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: the words after ``fedbr``.

    Returns:
        The exit code: 0, 1 for a run that failed, 2 for wrong input, 130 after Ctrl-C.
    """
    try:
        command = typer.main.get_command(app)
        words = repeat_options(arguments)
        code = command(args=words, prog_name="fedbr", standalone_mode=False)
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
    """Print why a command failed; return its exit code."""
    print(f"fedbr: {message}", file=sys.stderr)
    return code


def repeat_options(arguments: Sequence[str]) -> list[str]:
    """Write an option before each of its values, as typer expects it.

    Raises:
        InputError: an option has no value.

    >>> repeat_options(["--methods", "fedavg", "fedbr", "--fresh"])
    ['--methods', 'fedavg', '--methods', 'fedbr', '--fresh']
    """
    words: list[str] = []
    option = None  # the last one that takes several values, while there may be more of them
    for argument in arguments:
        is_first_value = option is not None and words[-1] == option
        if is_first_value and argument.startswith("--"):
            raise InputError(f"{option}: expected a value before {argument}")
        if argument in SEVERAL_VALUES:
            option = argument
        elif option is not None and not is_first_value:
            is_value = not argument.startswith("-") and SEVERAL_VALUES[option] in argument
            if is_value:
                words.append(option)
            else:
                option = None
        words.append(argument)
    return words
