"""Short definitions of the terms in the reports."""

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
        "A part of the rows that is held out: a network is trained on the other rows and scored on these.",
    ),
    (
        "Seed",
        "The start of the random number generator that draws the initial weights. Another seed gives a slightly "
        "different network from the same recipe.",
    ),
    ("Width", "The number of hidden neurons of a network, over all its layers. A linear model has none."),
    ("Epoch", "One pass over the rows a network is trained on."),
    ("Loss", "How wrong a network is: the number that training minimises."),
    (
        "To expect",
        "The score corrected for selecting the best of many: the selection is repeated on many random samples of the "
        "rows (bootstrap bias-corrected cross-validation).",
    ),
]
FINETUNE = [
    (
        "Token",
        "The unit of text that the model reads and writes: a common word, a part of a rarer one, "
        "or a single character.",
    ),
    (
        "Loss",
        "How badly the model predicts the next token of a text, on average (cross-entropy); zero is perfect. Training "
        "loss is measured on the rows the model learns from, evaluation loss on test rows it does not learn from.",
    ),
    (
        "Perplexity",
        "e to the power of the loss: the model is as uncertain about the next token as if it had to choose among this "
        "many equally likely ones.",
    ),
    ("Step", "One update of the weights, from one batch of texts."),
    ("Epoch", "One pass over all rows that the model is trained on."),
    (
        "Learning rate",
        "How far the weights move in a step. It often grows at first (the warm-up) and shrinks towards the end.",
    ),
    (
        "Gradient norm",
        "The length of the gradient of a batch: how strongly the loss depends on the weights. Sudden peaks are a sign "
        "of unusual texts or of a learning rate that is too high.",
    ),
    ("Evaluation", "Measuring the loss on the test rows, without learning from them."),
    ("Sample", "One row of the table, as one text."),
]


def section(pairs: list[tuple[str, str]]) -> Section:
    return Section("words", "Glossary", "Glossary", terms(pairs, "words"))
