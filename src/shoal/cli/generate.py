"""`shoal generate`: what a fine-tuned language model writes.

Libraries are imported inside the functions, so that `shoal --help` does not wait for them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.finetune import DEMO_PHRASE, need_libraries
from shoal.cli.parameters import with_options
from shoal.finetune.options import WritingOptions
from shoal.progress import steady_output
from shoal.terminal import say, say_data

GENERATE_EXAMPLES = f"""Examples:

shoal generate shoal-runs/problems-tiny-1 '{DEMO_PHRASE}'

shoal generate letters-run "Dear Sir" --temperature 0.8 --samples 3"""


@with_options()
def generate(
    run: Annotated[Path, typer.Argument(help="Folder of a fine-tuning run, or of a model.")],
    text: Annotated[
        list[str],
        typer.Argument(help="The first column of a text, or the first ones; the model writes the next. -: read it."),
    ],
    options: WritingOptions,
) -> None:
    """Let a fine-tuned model write. Only what it writes goes to the standard output."""
    need_libraries(False, 0)
    from shoal.finetune.generating import Writer

    steady_output()
    read = [sys.stdin.read().rstrip("\n") if part == "-" else part for part in text]
    begun = [part.encode("utf-8", "replace").decode("utf-8") for part in read]  # without halves of signs
    writer = Writer(run, options.device, lambda message: say(message, error=True))
    for number in range(options.samples):
        if number:
            say("---")
        say_data(writer.write(begun, options.tokens, options.temperature, options.top_p, options.seed + number))
