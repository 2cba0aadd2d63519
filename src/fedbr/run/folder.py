"""The result folder: a line per round, checkpoints that survive any kill, and what all of it adds
up to.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch

from ..backends.base import Backend
from ..backends.memory import ClientMemory
from ..core.server import Server
from ..core.wire import State, pack, unpack
from ..metrics.accuracy import definitions, summarise
from ..metrics.local import definitions as local_definitions
from ..recipe.load import parse_stored
from ..recipe.schema import Recipe, Variant
from ..util.errors import InputError, RunError
from ..util.files import reading, write
from .environment import environment

if os.name == "nt":  # pragma: no cover
    import msvcrt
else:
    import fcntl

CLEARED = "cleared"  # the mark of a run that --fresh was removing
MARK = "# The whole recipe as used, written by fedbr run."  # by which we know our folders


class RunFolder:
    """One run: the rounds done so far and the state to go on from."""

    def __init__(self, path: Path, rounds: int) -> None:
        self.path, self.rounds = path, rounds

    @property
    def info(self) -> dict[str, Any]:
        """What is known of the run beside its rounds: split, model, block_size, divergence."""
        return _read_json(self.path / "run.json", {})

    def note(self, **facts: Any) -> None:
        """Add to ``info``."""
        self.path.mkdir(parents=True, exist_ok=True)
        write(self.path / "run.json", dump(self.info | facts))

    def claim(self, content: str) -> None:
        """Refuse to go on with other samples than the run began with."""
        if (known := self.info.get("content", content)) != content:
            raise InputError(
                f"{self.path}: began with other data (content {known} then, {content} now); put the files back as they "
                "were, choose another folder, or --fresh to start over"
            )
        self.note(content=content)

    @property
    def finished(self) -> bool:
        """Whether there is nothing left to train: the last round is done, or the run diverged."""
        info = self.info
        if not info or CLEARED in info:
            return False
        lines = self.lines()
        whole = (
            bool(lines)
            and lines[-1]["round"] >= self.rounds
            and (self.path / "model.safetensors").exists()
        )
        return "diverged_at" in info or whole

    def lines(self) -> list[dict[str, Any]]:
        """Read the rounds; a line that a kill cut short is left out."""
        file = self.path / "metrics.jsonl"
        found = []
        for text in file.read_text("utf-8").splitlines() if file.exists() else []:
            try:
                line = json.loads(text)
            except json.JSONDecodeError:
                break
            if not isinstance(line, dict) or "round" not in line:
                break
            found.append(line)
        return found

    def append(self, line: Mapping[str, Any]) -> None:
        """Put a round on disk, for good, before the next begins."""
        with (self.path / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def checkpoint(self, round: int, server: Server, backend: Backend) -> None:
        """Replace the checkpoint. What is not in it is in files of ``memory`` that it names and
        that do not change.
        """
        header, payloads = server.snapshot()
        memory = backend.states
        clients = {"clients": sorted(memory.here), "filed": sorted(memory.filed.items())}
        payloads |= {f"client/{c}": state for c, state in memory.here.items()}
        write(
            self.path / "checkpoint.safetensors",
            pack({"round": round, **clients, **header}, payloads),
        )
        write(
            self.path / "checkpoint.json", json.dumps({"round": round, **clients}) + "\n"
        )  # to be read by people
        memory.tidy()

    def resume(self, server: Server, backend: Backend) -> int:
        """Go on from the checkpoint; drop what came after it. Return the last round that is done."""
        file, lines = self.path / "checkpoint.safetensors", self.lines()
        done: int = 0
        if (
            file.exists() or len(lines) > 1
        ):  # of one round there may be a line and no checkpoint yet
            with reading(file, f"without which the {len(lines)} rounds that are done are lost"):
                header, payloads = unpack(file.read_bytes())
                server.restore(header, payloads)
                here = {c: payloads[f"client/{c}"] for c in header["clients"]}
                backend.states.restore(here, header.get("filed", []))
            backend.shared.update(server.shared)
            done = header["round"]
        kept = [line for line in lines if line["round"] <= done]
        if [line["round"] for line in kept] != list(range(1, done + 1)):
            raise RunError(
                f"{self.path}: the checkpoint is at round {done}, but metrics.jsonl lacks rounds before it"
            )
        write(self.path / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in kept))
        return done

    def clear(self) -> None:
        """Remove what we wrote, nothing else; what a kill leaves of it is known by its mark, and
        goes next time.
        """
        if self.path.exists():
            write(self.path / "run.json", dump({CLEARED: True}))
        ClientMemory(self.path / "memory").tidy()
        with contextlib.suppress(OSError):
            (self.path / "memory").rmdir()
        for name in (
            "model.safetensors",
            "checkpoint.safetensors",
            "checkpoint.json",
            "metrics.jsonl",
            "run.json",
        ):
            (self.path / name).unlink(missing_ok=True)
            (self.path / f".{name}.new").unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # somebody else's file is in it
            self.path.rmdir()

    def save_model(self, models: State | list[State], facts: Mapping[str, Any]) -> None:
        """Export the global model, or each client's own, without the modules that methods added for
        training.
        """
        named = (
            {"": models}
            if isinstance(models, dict)
            else {f"client{i}.": m for i, m in enumerate(models)}
        )
        tensors = {
            prefix + k: v.clone(memory_format=torch.contiguous_format)
            for prefix, params in named.items()
            for k, v in params.items()
            if not k.startswith("extras.")
        }
        write(
            self.path / "model.safetensors",
            safetensors.torch.save(tensors, {"fedbr": json.dumps(facts)}),
        )


class ResultFolder:
    """All runs of one recipe."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self.path, self.recipe = path, recipe

    def refuse(self, fresh: bool = False) -> None:
        """Refuse a folder that is not ours, or that holds another recipe; leave it as it is."""
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"--out {self.path}: is not a folder")
        ours = self._is_ours()
        if ours and not fresh:
            self._check_same()
            self._check_code()
        elif (
            not ours
            and self.path.exists()
            and any(not p.name.startswith(".") for p in self.path.iterdir())
        ):
            raise InputError(
                f"--out {self.path}: is not empty and holds no results of ours; choose another folder"
            )

    @contextlib.contextmanager
    def open(self, fresh: bool = False) -> Iterator[ResultFolder]:
        """Claim the folder for this recipe and this process, or refuse."""
        self.refuse(fresh)
        with contextlib.ExitStack() as exits:
            try:
                self.path.mkdir(parents=True, exist_ok=True)
                exits.enter_context(_locked(self.path))
                if fresh:
                    self._clear()
                for run in [RunFolder(path, 0) for path in (self.path / "runs").glob("*/")]:
                    if CLEARED in run.info:  # a kill came in between
                        run.clear()
                write(self.path / "recipe.toml", f"{MARK}\n{self.recipe.to_toml()}")
                self._note_environment()
            except OSError as error:
                raise InputError(
                    f"--out {self.path}: cannot write there ({error.strerror})"
                ) from error
            yield self

    def discard(self) -> None:
        """Remove what we wrote, whatever recipe it was of."""
        self.refuse(fresh=True)
        if self._is_ours():
            with _locked(self.path):
                self._clear()
                (self.path / "recipe.toml").unlink()

    def run(self, variant: Variant, seed: int) -> RunFolder:
        """Return the folder of one run."""
        return RunFolder(
            self.path / "runs" / self.name(variant.label, seed), self.recipe.train.rounds
        )

    def name(self, label: str, seed: int) -> str:
        """Name a run after its label, as far as a file name can be."""
        labels = [variant.label for variant in self.recipe.compare]
        names = [re.sub(r"[^\w .+=-]", "_", other).casefold() for other in labels]
        name = re.sub(r"[^\w .+=-]", "_", label)
        if name != label or names.count(name.casefold()) > 1:
            name += f"#{labels.index(label)}"
        return f"{name}-{seed}"

    @classmethod
    def read(cls, path: Path) -> ResultFolder:
        """Find the results of an earlier call."""
        file = path / "recipe.toml"
        if not file.exists():
            inside = sorted(str(found.parent) for found in path.glob("**/recipe.toml"))
            hint = (
                f"there are some in {', '.join(inside[:4])}"
                if inside
                else "give the --out folder of fedbr run"
            )
            raise InputError(f"{path}: holds no results (no recipe.toml); {hint}")
        return cls(path, parse_stored(_read_toml(file)))

    def summarise(self) -> dict[str, Any]:
        """Write results.json."""
        results = self.results()
        write(self.path / "results.json", dump(results))
        return results

    def results(self) -> dict[str, Any]:
        """Add up what is on disk, finished or not."""
        runs = [
            _summary(self.run(variant, seed), variant, seed, self.recipe)
            for variant in self.recipe.compare
            for seed in self.recipe.train.seeds
        ]
        started = [run for run in runs if run is not None]
        own_tests = any(run["own_tests"] for run in started)
        return {
            "recipe": self.recipe.model_dump(exclude_none=True),
            "metrics": definitions(own_tests)
            | (local_definitions() if self.recipe.metrics.bias_every else {}),
            "runs": [{k: v for k, v in run.items() if k != "own_tests"} for run in started],
        }

    def _is_ours(self) -> bool:
        file = self.path / "recipe.toml"
        return file.exists() and file.read_bytes().startswith(MARK.encode())

    def _check_same(self) -> None:
        there = _read_toml(self.path / "recipe.toml")
        with contextlib.suppress(
            InputError
        ):  # an older version's recipe: what it did not know has its default
            there = tomllib.loads(parse_stored(there).to_toml())
        here = tomllib.loads(self.recipe.to_toml())
        for variant in (*there.get("compare", []), *here["compare"]):
            variant.pop("tuned", None)  # a remark that changes no run
        for key in ("train", "metrics"):
            there.setdefault(key, {})
        if {*there["train"].get("seeds", [])} <= {*here["train"]["seeds"]}:
            there["train"]["seeds"] = here["train"]["seeds"]  # more of them: what is finished stays
        if self._only_adds(there.get("compare", []), here["compare"]):
            there["compare"] = here["compare"]
        if self._only_goes_on(there, here):
            there["train"]["rounds"] = here["train"]["rounds"]
        if there != here:
            found = list(differences(there, here))
            more = f", and {len(found) - 3} more" if len(found) > 3 else ""
            raise InputError(
                f"--out {self.path}: holds another recipe ({'; '.join(_differs(*one) for one in found[:3])}{more}); "
                "choose another folder, or --fresh to start over"
            )

    def _only_adds(self, there: list[dict[str, Any]], here: list[dict[str, Any]]) -> bool:
        """Say whether variants came behind those that were there, whose folders are still called the
        same.
        """
        known = [variant["label"] for variant in there]
        before = ResultFolder(
            self.path, self.recipe.model_copy(update={"compare": self.recipe.compare[: len(there)]})
        )
        return there == here[: len(there)] and all(
            before.name(label, 0) == self.name(label, 0) for label in known
        )

    @staticmethod
    def _only_goes_on(there: Mapping[str, Any], here: Mapping[str, Any]) -> bool:
        """Say whether rounds came behind a last one that was no other than it would be among them."""
        train, last = here["train"], there["train"].get("rounds", 0)
        every = (train["evaluate_every"], here["metrics"]["bias_every"] or 1)
        usual = "evaluate_samples" not in train and all(k and last % k == 0 for k in every)
        return usual and 0 < last < train["rounds"]

    def _check_code(self) -> None:
        """Refuse results that other code of the user's made: the recipe has only its name."""
        for variant in self.recipe.compare:
            code = self.recipe.code(variant)
            for run in (
                (self.run(variant, seed) for seed in self.recipe.train.seeds) if code else ()
            ):
                known = (
                    run.info.get("code", code) if run.lines() else code
                )  # nothing is done: nothing to protect
                if changed := [name for name, found in code.items() if known.get(name) != found]:
                    raise InputError(
                        f"--out {self.path}: {run.path.name} was made with other code ({changed[0]} has changed); "
                        "choose another folder, or --fresh to start over"
                    )

    def _note_environment(self) -> None:
        """Keep where the runs began; add where they went on, if that is another place."""
        file, here = self.path / "environment.json", environment()
        known = _read_json(file, here)
        later = known.pop("later", [])
        if here not in (known, *later):
            later.append(here)
        write(file, dump(known | ({"later": later} if later else {})))

    def _clear(self) -> None:
        """Remove what we wrote, nothing else."""
        from ..bias.report import clear  # which uses this module

        clear(self.path)
        for name in ("results.json", "runs.csv", "rounds.csv", "report.html", "environment.json"):
            (self.path / name).unlink(missing_ok=True)
        for run in (self.path / "runs").glob("*/"):
            RunFolder(run, 0).clear()
        with contextlib.suppress(OSError):
            (self.path / "runs").rmdir()


def dump(value: Any) -> str:
    """Write JSON for people and programs alike."""
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _read_json(file: Path, missing: dict[str, Any]) -> dict[str, Any]:
    if not file.exists():
        return missing
    with reading(file):
        found: dict[str, Any] = json.loads(file.read_text("utf-8"))
        return found


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not TOML ({error})") from error


def _summary(
    folder: RunFolder, variant: Variant, seed: int, recipe: Recipe
) -> dict[str, Any] | None:
    lines, info = folder.lines(), folder.info
    if "split" not in info:  # it has hardly begun
        return None
    diverged = info.get("diverged_at")
    targets = sorted({*recipe.metrics.targets, recipe.metrics.target})
    seconds = {k: sum(line[f"seconds_{k}"] for line in lines) for k in ("train", "evaluate")}
    local = [line["accuracy_local"] for line in lines if "accuracy_local" in line]
    return {
        "label": variant.label,
        "methods": variant.methods,
        **variant.model_dump(include={"train", "tuned"}, exclude_none=True),
        "seed": seed,
        "rounds": len(lines),
        "finished": folder.finished,
        "split": info["split"],
        "model": info["model"],
        "clients_at_once": info.get("clients_at_once", info.get("cohort")),
        "test_samples": info.get("test"),
        **summarise(lines, targets),
        **({"accuracy_local": local[-1]} if local else {}),
        "bytes": {way: sum(line[f"bytes_{way}"] for line in lines) for way in ("up", "down")},
        "seconds": seconds | {"total": sum(seconds.values())},
        "diverged": diverged is not None,
        "diverged_at": diverged,
        "own_tests": info["own_tests"],
    }


def differences(a: Any, b: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Compare two recipes: every key that differs, with both values."""
    if isinstance(a, dict) and isinstance(b, dict):
        for k in sorted({*a, *b}):
            yield from differences(a.get(k), b.get(k), f"{key}.{k}" if key else k)
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i, (left, right) in enumerate(zip(a, b, strict=True)):
            yield from differences(left, right, f"{key}.{i}")
    elif a != b:
        yield key, a, b


def _differs(key: str, *values: Any) -> str:
    if key == "compare":
        values = tuple(", ".join(str(variant.get("label")) for variant in side) for side in values)
    there, here = map(reprlib.repr, values)
    return f"{key} is {there} there, {here} here"


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep a second process out; the system lifts the lock even when this one is killed."""
    with (path / ".lock").open("w") as file:
        try:
            if os.name == "nt":  # pragma: no cover
                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
            else:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise InputError(f"--out {path}: another fedbr process is working there") from error
        yield
