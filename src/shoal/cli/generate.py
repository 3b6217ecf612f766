"""`shoal generate`: generate text with a fine-tuned language model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from shoal.cli.finetune import DEMO_PHRASE, need_libraries
from shoal.cli.parameters import with_options
from shoal.console.progress import steady_output
from shoal.console.terminal import say, say_data
from shoal.finetune.generating import TextGenerator
from shoal.finetune.options import WritingOptions

GENERATE_EXAMPLES = f"""\b
Examples:
  shoal generate shoal-runs/problems-tiny-1 '{DEMO_PHRASE}'
  shoal generate letters-run "Dear Sir" --temperature 0.8 --samples 3"""


class _Notes:
    def note(self, text: str) -> None:
        say(f"note: {text}", error=True)


@with_options()
def generate(
    run: Annotated[Path, typer.Argument(help="Folder of a fine-tuning run, or of a model.")],
    text: Annotated[
        list[str],
        typer.Argument(
            metavar="TEXT...",
            help="The first column of a text, or several; the model writes the next. - reads from standard input.",
        ),
    ],
    options: WritingOptions,
) -> None:
    """Generate text with a fine-tuned model. Only the generated text goes to standard output."""
    need_libraries(False, 0)
    steady_output()
    read = [sys.stdin.read().rstrip("\n") if part == "-" else part for part in text]
    begun = [part.encode("utf-8", "replace").decode("utf-8") for part in read]  # without halves of signs
    generator = TextGenerator(run, options.device, [_Notes()])
    for number in range(options.samples):
        if number:
            say("---")
        say_data(generator.generate(begun, options.tokens, options.temperature, options.top_p, options.seed + number))
