"""``nova-lite apply``: brings a project of a cloud to what a file describes, and shows the effects before.

Its core is pure: from the things of a file and those of a cloud to steps.

- `api`: requests to the cloud's APIs by openstacksdk
- `desired`: things that a file describes
- `document`: form of the file, and the line of each part
- `effects`: costs of steps for users, in plain words
- `mark`: mark on each thing that a file has made
- `plan`: steps from the things of a cloud to those of a file, and a simulation of them
- `reader`: reads the things of a file in a cloud
- `text`: plans as text
- `writer`: carries out steps
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from nova_lite.cmd.apply import document, text
from nova_lite.cmd.apply import plan as plans
from nova_lite.cmd.apply.api import Api, connect
from nova_lite.cmd.apply.desired import Builder, wanted_names
from nova_lite.cmd.apply.document import File, Mistake
from nova_lite.cmd.apply.plan import Place, Step
from nova_lite.cmd.apply.reader import Reader
from nova_lite.cmd.apply.writer import Unfinished, Writer

PROG = "nova-lite apply"
DESCRIPTION = (
    "Bring a project of a cloud to what a file describes. It shows each effect, asks, and then does exactly that. It "
    "changes and deletes only what it has made itself."
)
#: Exit statuses: all is as the file describes, or is now; it could not be done; `--diff` found a difference.
DONE, FAILED, DIFFERENT = 0, 1, 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-f", "--file", required=True, metavar="FILE", help="file that describes the cloud")
    parser.add_argument("--cloud", metavar="NAME", help="name in clouds.yaml; default: OS_CLOUD or the environment")
    parser.add_argument("--diff", action="store_true", help="only show the plan; exit status 2 if it is not empty")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=PROG, description=DESCRIPTION)
    add_arguments(parser)
    return parser


def run(args: argparse.Namespace) -> int:
    """Plan, ask, and apply. Returns the exit status."""
    try:
        file = document.load(args.file)
        try:
            return _run(args, file, connect(args.cloud))
        except Mistake as error:
            raise Mistake(file.complaint(error)) from error
    except Mistake as error:
        print(f"{PROG}: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f"{PROG}: interrupted; repeat it to continue.", file=sys.stderr)
        return 130


def _run(args: argparse.Namespace, file: File, api: Api) -> int:
    builder, place, steps = planned(api, file)
    if not steps:
        print(f"Nothing to do: cloud {file.document.cloud} is as {file.path} describes it.")
        return DONE
    print(f"Plan for cloud {file.document.cloud} of {file.path}:\n")
    print("\n".join(text.rows(steps)))
    print(f"\n{text.summary(steps)}.")
    if args.diff:
        return DIFFERENT
    if obstacle := place.obstacle(steps):
        key, sentence = obstacle
        raise Mistake(f"{sentence} Nothing was changed.", builder.paths.get(key, ""))
    if not args.yes and not _is_confirmed():
        print("Nothing was changed.")
        return FAILED
    if read(api, file).fingerprint() != place.fingerprint():
        raise Mistake("the cloud has changed since the plan was made, so nothing was done: look at a new plan.")
    carry_out(api, file, builder, place, steps)
    print(f"Done: {text.summary(steps)}.")
    return DONE


def read(api: Api, file: File) -> Place:
    """Return the things of a file in the cloud, and the others that the file names."""
    return Reader(api, file.document.cloud, wanted_names(file.document)).read()


def planned(api: Api, file: File) -> tuple[Builder, Place, list[Step]]:
    """Read the cloud, and return what the file wants, what is there, and the steps between."""
    place = read(api, file)
    builder = Builder(file.document, place)
    return builder, place, plans.steps(builder.build(), place.found)


def carry_out(api: Api, file: File, builder: Builder, place: Place, steps: Sequence[Step]) -> None:
    """Carry out the steps. Raises `Mistake` at the first that fails, with its place in the file."""
    writer = Writer(api, file.document, place)
    try:
        for step in steps:
            if not step.implied:
                print(f"{step.op} {text.title(step.key)}", flush=True)
            writer.do(step)
        writer.finish()
    except Unfinished as error:
        sentence = f"{error} What is done so far stays; repeat it to continue."
        raise Mistake(sentence, builder.paths.get(error.key, "")) from error


def _is_confirmed() -> bool:
    try:
        return input('Apply it? Only "yes" is a yes: ').strip() == "yes"
    except EOFError:
        return False
