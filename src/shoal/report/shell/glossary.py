"""Short definitions of the terms in the reports."""

from __future__ import annotations

from shoal.report.shell.markup import Section, terms

SEARCH = {
    "Recipe": "The settings of a network: its layers and how it is trained. One row of the leaderboard.",
    "Fold": "A part of the rows, held out while a network trains on the others and scored on afterwards.",
    "Seed": "The start of the random number generator that draws the initial weights. Another seed gives a slightly "
    "different network from the same recipe.",
    "Width": "The number of hidden neurons of a network, over all its layers. A linear model has none.",
    "Epoch": "One pass over the rows a network is trained on.",
    "Loss": "How wrong a network is: the number that training minimises.",
    "Worse by": "How much lower the score is when the cells of a column are shuffled among the rows (permutation "
    "importance).",
    "To expect": "The score corrected for selecting the best of many: the selection is repeated on many random "
    "samples of the rows (bootstrap bias-corrected cross-validation).",
}
FINETUNE = {
    "Token": "The unit of text that the model reads and writes: a common word, a part of a rarer one, or a single "
    "character.",
    "Loss": "How badly the model predicts the next token of a text, on average (cross-entropy); zero is perfect. "
    "Training loss is measured on the rows the model learns from, evaluation loss on test rows it does not learn from.",
    "Perplexity": "e to the power of the loss: the model is as uncertain about the next token as if it had to choose "
    "among this many equally likely ones.",
    "Step": "One update of the weights, from one batch of texts.",
    "Epoch": "One pass over all rows that the model is trained on.",
    "Learning rate": "How far the weights move in a step. It often grows at first (the warm-up) and shrinks towards "
    "the end.",
    "Gradient norm": "The length of the gradient of a batch: how strongly the loss depends on the weights. Sudden "
    "peaks are a sign of unusual texts or of a learning rate that is too high.",
    "Evaluation": "Measuring the loss on the test rows, without learning from them.",
    "Sample": "One row of the table, as one text.",
}
WHY = {
    "Adds": "The Shapley value of a column: what the prediction changes when the column gets its value, on average "
    "over all orders in which columns may get theirs.",
    "Average": "The mean prediction of rows of the training data that each row is compared with.",
    "Standard error": "How much the number would change if it were estimated again.",
}
PLAN = {
    "Node": "One of the machines, processes or threads that train together. Each computes a part and sends results to "
    "others.",
    "Strategy": "How the work is split over the nodes, and what they send each other.",
    "Speed-up": "The time on one node, divided by the time on several. Twice as fast is a speed-up of 2. Ideal is the "
    "number of nodes.",
    "Efficiency": "The speed-up divided by the number of nodes. Ideal is 100%.",
    "Time saved (PI)": "The improvement in percent over the time on one node: 50% is half the time, 0% is no gain. "
    "Where several nodes are slower, the table says how much longer they take.",
    "Waits for the link": "The share of a step in which a node waits for the link and does not compute.",
    "Bandwidth and latency": "How much a link carries in a second, and how long the first byte takes. Many small "
    "messages wait for the latency, few large ones for the bandwidth.",
    "Epoch": "One pass over all rows of the training data.",
    "Step": "One update of the weights, from one batch of rows.",
    "Critical batch": "The batch size up to which larger batches save steps nearly in proportion. Far above it a "
    "larger batch costs more rows and saves few steps. It is estimated by the gradient noise scale.",
}
# By the name of a strategy. A page explains those that it shows.
STRATEGIES = {
    "allreduce": (
        "All-reduce",
        "Each batch is split over the nodes. After each step they sum their gradients, so all have the same weights.",
    ),
    "local_sgd": (
        "Local SGD",
        "Each node trains on its own rows, and the weights are averaged now and then. It sends little, but the result "
        "differs from that of one node.",
    ),
    "gossip": ("Gossip", "As local SGD, but each node averages its weights with its neighbours on a ring only."),
    "parameter_server": (
        "Parameter server",
        "One node holds the weights; the others fetch them and send gradients, in step or each at its own pace.",
    ),
    "sharded": (
        "Sharded",
        "As all-reduce, but each node keeps a part of the weights only, and the parts are gathered layer by layer.",
    ),
    "pipeline": (
        "Pipeline",
        "Each node holds some of the layers, and parts of a batch pass through the nodes one after the other.",
    ),
    "tensor": ("Tensor", "The matrices of each layer are split over the nodes, which exchange activations."),
    "data+pipeline": ("Data and pipeline", "Layers are split over some of the nodes, rows over the others."),
    "data+tensor": ("Data and tensor", "Matrices are split over some of the nodes, rows over the others."),
    "kfold": ("K-fold", "Cross-validation: each node trains on other folds of the rows."),
}


def section(entries: dict[str, str]) -> Section:
    return Section("words", "Glossary", "Glossary", terms(entries.items(), "words"))
