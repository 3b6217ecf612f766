"""Networks of equal shape in JAX: a whole epoch in one jit, a scan over its batches, parameters donated.

Three formulations of the same arithmetic, of which the fastest counts:
  vmap    jax.vmap(jax.grad(loss)) over stacked parameters, as the documentation of JAX shows it
  einsum  batched products over stacked parameters; the gradient of the summed losses is each network's own
  wide    as einsum, but the first layers of all networks stand side by side in one matrix: one large product
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.harness.machine import Lazy
from benchmarks.harness.problems import Problem, group
from benchmarks.peers import Weights
from shoal.population.activations import check_complete
from shoal.population.members import Member

# An extra that may not be there: this module must load without it.
jax: Any = Lazy("jax")
jnp: Any = Lazy("jax.numpy")

ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    "sigmoid": lambda x: jax.nn.sigmoid(x),
    "tanh": lambda x: jnp.tanh(x),
    "relu": lambda x: jax.nn.relu(x),
    "elu": lambda x: jax.nn.elu(x),
    "selu": lambda x: jax.nn.selu(x),
    "gelu": lambda x: jax.nn.gelu(x, approximate=False),
    "leaky_relu": lambda x: jax.nn.leaky_relu(x),
    "hardshrink": lambda x: jnp.where(jnp.abs(x) > 0.5, x, 0.0),
    "mish": lambda x: jax.nn.mish(x),
}
check_complete(ACTIVATIONS, "ACTIVATIONS in bench/peers/jax_stacked.py")
Layers = list[tuple[Any, Any]]


class JaxPeer:
    """All networks of equal shape at once, or `chunk` of them, with JAX's own threads."""

    def __init__(self, problem: Problem, threads: int, formulation: str = "vmap", chunk: int | None = None) -> None:
        del threads  # JAX chooses: it has one pool for the process
        self.X, self.y = jnp.asarray(problem.X), jnp.asarray(problem.y.astype(np.int32))
        self.formulation = formulation
        members = problem.population.members
        self.place: dict[int, tuple[int, int]] = {}
        self.states: list[Any] = []
        self.epochs: list[Any] = []  # compiled, one for each part
        for indices in group(members):
            epoch = compile_epoch(members[int(indices[0])], formulation, problem.batch_size)
            size = chunk or len(indices)
            for start in range(0, len(indices), size):
                part = indices[start : start + size]
                self.place |= {int(i): (len(self.states), k) for k, i in enumerate(part)}
                self.states.append(self._pack([problem.population.weights(int(i)) for i in part], members[part[0]]))
                self.epochs.append(epoch)

    def _pack(self, networks: list[Weights], member: Member) -> Any:
        layers = list(zip(*networks, strict=True))
        weights = [np.stack([W for W, _ in layer]) for layer in layers]  # [networks, fan_in, fan_out]
        if self.formulation == "wide":
            weights[0] = np.ascontiguousarray(weights[0].transpose(1, 0, 2))  # [features, networks, width]
        biases = [np.stack([b for _, b in layer]) for layer in layers]
        parameters = [(jnp.asarray(W), jnp.asarray(b)) for W, b in zip(weights, biases, strict=True)]
        if member.optimizer == "sgd":
            return parameters
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return parameters, zeros, jax.tree.map(jnp.copy, zeros), jnp.zeros((), jnp.int32)

    def run(self, epochs: int, shuffle: bool = True) -> None:
        generator = np.random.default_rng()
        rows = len(self.X)
        for part, epoch in enumerate(self.epochs):
            for _ in range(epochs):
                order = jnp.asarray(generator.permutation(rows) if shuffle else np.arange(rows))
                self.states[part] = epoch(self.states[part], self.X, self.y, order)
        jax.block_until_ready(self.states)

    def warm_up(self) -> None:
        self.run(1)

    def weights(self, i: int) -> Weights:
        part, k = self.place[i]
        state = self.states[part]
        parameters = state[0] if isinstance(state, tuple) else state
        first = parameters[0][0][:, k] if self.formulation == "wide" else parameters[0][0][k]
        weights = [first] + [W[k] for W, _ in parameters[1:]]
        return [(np.asarray(W), np.asarray(b[k])) for W, (_, b) in zip(weights, parameters, strict=True)]


def compile_epoch(member: Member, formulation: str, batch_size: int) -> Any:
    """(state, X, y, order) -> state after one epoch, the last and smaller batch included."""
    gradients = GRADIENTS[formulation](ACTIVATIONS[member.activation])
    update = {"sgd": sgd, "adam": adam}[member.optimizer](member, gradients)

    def epoch(state: Any, X: Any, y: Any, order: Any) -> Any:
        X, y = X[order], y[order]
        whole = len(X) // batch_size * batch_size
        batches = X[:whole].reshape(-1, batch_size, X.shape[1]), y[:whole].reshape(-1, batch_size)
        state, _ = jax.lax.scan(lambda now, batch: (update(now, *batch), None), state, batches)
        return update(state, X[whole:], y[whole:]) if whole < len(X) else state

    return jax.jit(epoch, donate_argnums=0)


def cross_entropy(outputs: Any, y: Any) -> Any:
    """Mean over the rows; any number of dimensions before [rows, outputs]."""
    chosen = jax.nn.one_hot(y, outputs.shape[-1], dtype=outputs.dtype)
    return -(jax.nn.log_softmax(outputs) * chosen).sum(-1).mean(-1)


def vmap_gradients(activation: Callable[[Any], Any]) -> Any:
    def loss(parameters: Layers, X: Any, y: Any) -> Any:
        for k, (W, b) in enumerate(parameters):
            X = X @ W + b
            X = activation(X) if k < len(parameters) - 1 else X
        return cross_entropy(X, y)

    return jax.vmap(jax.grad(loss), in_axes=(0, None, None))


def stacked_gradients(first: str) -> Any:
    """`first` is the product of the first layer: b rows, i features, m networks, o neurons."""

    def make(activation: Callable[[Any], Any]) -> Any:
        def loss(parameters: Layers, X: Any, y: Any) -> Any:
            signal = X
            for k, (W, b) in enumerate(parameters):
                signal = jnp.einsum(first if k == 0 else "mbi,mio->mbo", signal, W) + b[:, None]
                signal = activation(signal) if k < len(parameters) - 1 else signal
            return cross_entropy(signal, y).sum()

        return jax.grad(loss)

    return make


GRADIENTS = {
    "vmap": vmap_gradients,
    "einsum": stacked_gradients("bi,mio->mbo"),
    "wide": stacked_gradients("bi,imo->mbo"),
}


def sgd(member: Member, gradients: Any) -> Any:
    def update(parameters: Layers, X: Any, y: Any) -> Layers:
        steps = gradients(parameters, X, y)
        return jax.tree.map(lambda value, step: value - member.learning_rate * step, parameters, steps)

    return update


def adam(member: Member, gradients: Any, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8) -> Any:
    """torch's Adam, with its defaults."""

    def update(state: Any, X: Any, y: Any) -> Any:
        parameters, mean, square, count = state
        steps = gradients(parameters, X, y)
        count = count + 1
        mean = jax.tree.map(lambda m, g: beta1 * m + (1 - beta1) * g, mean, steps)
        square = jax.tree.map(lambda v, g: beta2 * v + (1 - beta2) * g * g, square, steps)
        rate, root = member.learning_rate / (1 - beta1**count), jnp.sqrt(1 - beta2**count)
        parameters = jax.tree.map(
            lambda value, m, v: value - rate * m / (jnp.sqrt(v) / root + epsilon), parameters, mean, square
        )
        return parameters, mean, square, count

    return update
