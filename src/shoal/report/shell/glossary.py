"""The words that reports use, said once more for those who meet them here for the first time."""

from __future__ import annotations

from shoal.report.shell.markup import Section, terms

SEARCH = [
    (
        "Recipe",
        "The settings of a network: how many neurons in which layers, and how it is trained. "
        "One row of the leaderboard.",
    ),
    (
        "Fold",
        "A part of the rows that is held out. A network is trained on the others and scored on this one, "
        "which it has never seen.",
    ),
    (
        "Seed",
        "The number that the random first weights come from. Another seed gives a slightly different network "
        "from the same recipe.",
    ),
    ("Width", "All hidden neurons of a network, over all its layers. A linear model has none."),
    ("Epoch", "One pass over the rows a network is trained on."),
    ("Loss", "How wrong a network is, in the measure it is trained to make small."),
    (
        "To expect",
        "The score corrected for having picked the best of many, by drawing rows again and again and repeating the "
        "choice each time (bootstrap bias-corrected cross-validation).",
    ),
]
FINETUNE = [
    (
        "Token",
        "A piece of text that the model reads and writes at once: a common word, a part of a rarer one, "
        "or a single sign.",
    ),
    (
        "Loss",
        "How surprised the model is, on average, by the next token of a text; zero is no surprise. Training loss is "
        "measured on the rows it learns from, evaluation loss on test rows that it does not.",
    ),
    (
        "Perplexity",
        "The same surprise in other clothes: the model hesitates as if it had to pick the next token from so many "
        "equally likely ones. It is e to the power of the loss.",
    ),
    ("Step", "One small change of the weights, after looking at one batch of texts."),
    ("Epoch", "One pass over all rows that the model is trained on."),
    (
        "Learning rate",
        "How far the weights move in a step. It often grows at first (the warm-up) and shrinks towards the end.",
    ),
    (
        "Gradient norm",
        "How strongly a batch pulls at the weights. Sudden peaks are a sign of unusual texts or of a learning rate "
        "that is too high.",
    ),
    ("Evaluation", "A pause in which the model is measured on the test rows and does not learn from them."),
    ("Sample", "One row of the table, as one text."),
]


def section(pairs: list[tuple[str, str]]) -> Section:
    return Section("words", "Words", "Words", terms(pairs, "words"))
